# SPDX-License-Identifier: MIT
"""The recorder does not get to read its ring for a while: the kernel has to stop tracing, and goes on later."""

import os
import signal
import sys

from labtools import Gated, counter, note

first = counter("bytes")
target = Gated("--aux-size=64K")
target.done()
os.kill(target.pid, signal.SIGSTOP)
bytes_before = -1
while counter("bytes") != bytes_before:  # the ring is full when computing makes no packets
    bytes_before = counter("bytes")
    target.again()
note("stopped", bytes_before - first)
os.kill(target.pid, signal.SIGCONT)
while target.size <= bytes_before - first:  # until it has gone on, and that was stored
    target.again()
status = target.end()
note("bytes", counter("bytes") - first)
sys.exit(status)
