# SPDX-License-Identifier: MIT
"""Watchpoints (docs/watchpoints.md): what --watch names, found in programs' symbols and debug information, and what
libtthread is told of it. `spec` parses, `variables` looks names up, `plan` decides and writes."""
