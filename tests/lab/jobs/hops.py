# SPDX-License-Identifier: MIT
"""A program recorded by CPU that changes its CPU all the time."""

import sys

from labtools import record

sys.exit(record("--", "hops-static", "40"))
