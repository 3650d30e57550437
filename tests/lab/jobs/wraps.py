# SPDX-License-Identifier: MIT
"""A ring that is much smaller than the trace. The program goes on when what it did was stored: however slow the machine
is, the ring is never full."""

import sys
import time

from labtools import Gated, counter

AUX = 64 << 10  # the program's start needs the most of it

first = counter("bytes")
target = Gated(f"--aux-size={AUX}")
target.done()
while target.size < 9 * AUX:
    while target.size < counter("bytes") - first:
        time.sleep(0.002)
    target.again()
sys.exit(target.end())
