# SPDX-License-Identifier: MIT
"""Signal handlers, and a jump out of one."""

import sys

from labtools import record

sys.exit(record("--threads=native", "--", "signals"))
