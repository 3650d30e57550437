# SPDX-License-Identifier: MIT
"""A merged run in other tools' formats. Each format is a module whose `export` writes to a file object, streaming, and
returns what the run lacks for it, in words. docs/exports.md says what becomes of what."""
