# SPDX-License-Identifier: MIT
"""A program that libtthread cannot be preloaded into: recorded by CPU."""

import sys

from labtools import record

sys.exit(record("--", "deterministic-static", "3000"))
