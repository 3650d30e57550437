# SPDX-License-Identifier: MIT
"""Two threads of which one loses its processor before the same system call behind which the other gives it back."""

import sys

from labtools import record

sys.exit(record("--threads=native", "--", "turns", "10000"))
