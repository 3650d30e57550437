# SPDX-License-Identifier: MIT
"""A program with one thread; its system calls as perf tells of them."""

import sys

from labtools import record

sys.exit(record("--syscalls-with=perf", "--threads=native", "--", "deterministic", "3000", calls=True))
