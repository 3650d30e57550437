# SPDX-License-Identifier: MIT
"""Many threads, one after the other: what each needed is given back."""

import os
import sys
import time

from labtools import Gated, note

target = Gated(program="serial", rounds=30)
target.done()
while (left := len(os.listdir(f"/proc/{target.pid}/fd"))) > 40 and time.monotonic() < 600:
    time.sleep(0.02)  # the last ones are about to be
note("descriptors", left)
sys.exit(target.end())
