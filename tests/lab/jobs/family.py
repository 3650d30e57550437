# SPDX-License-Identifier: MIT
"""Fork, exec and spawn."""

import sys

from labtools import record

sys.exit(record("--threads=native", "--", "family", "/in/bin/deterministic", "300"))
