# SPDX-License-Identifier: MIT
"""Four threads, each a process of its own."""

import sys

from labtools import record

sys.exit(record("--threads=process", "--", "four", "20"))
