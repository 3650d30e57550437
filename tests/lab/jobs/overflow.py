# SPDX-License-Identifier: MIT
"""The module drops packets now and then, as a processor that cannot keep up."""

import sys

from labtools import counter, module, note, record

module(overflow_every=20000, overflow_length=500)
before = counter("overflows")
status = record("--threads=native", "--", "deterministic", "3000")
module(overflow_every=0)
note("overflows", counter("overflows") - before)
sys.exit(status)
