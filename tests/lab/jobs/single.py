# SPDX-License-Identifier: MIT
"""A program with one thread."""

import sys

from labtools import record

sys.exit(record("--threads=native", "--", "deterministic", "3000"))
