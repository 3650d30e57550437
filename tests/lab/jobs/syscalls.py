# SPDX-License-Identifier: MIT
"""System calls beside the packets: the recorder's programs in Debian's own kernel."""

import sys

from labtools import record

sys.exit(record("--", "deterministic-static", "3000", calls=True))
