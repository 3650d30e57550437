# SPDX-License-Identifier: MIT
"""Four threads."""

import sys

from labtools import record

sys.exit(record("--threads=native", "--", "four", "20"))
