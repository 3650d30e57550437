# SPDX-License-Identifier: MIT
"""A flight recorder that is asked for snapshots: after many rings' worth of packets, soon after, and late again."""

import os
import signal
import sys
import time

from labtools import ORACLE, Gated, counter, note

SEEN = 0.06
"""Seconds after which the recorder has looked: three of its ticks."""

first = counter("bytes")
target = Gated("--snapshot", "--aux-size=64K", rounds=2000)
target.done()
target.quiet()
parts = 0


def rounds(count: int) -> None:
    """Each is a part of its own to the module."""
    global parts
    for _ in range(count):
        time.sleep(SEEN)
        ORACLE.write_text("0")
        target.again()
        target.quiet()
        note(f"part{parts}", ORACLE.read_text())
        parts += 1


def ask() -> None:
    before = target.size
    time.sleep(SEEN)
    os.kill(target.pid, signal.SIGUSR2)
    while target.size == before:
        time.sleep(SEEN)
    time.sleep(SEEN)
    note(f"stored{parts}", target.size)


rounds(14)
ask()
rounds(2)
ask()
rounds(13)
ask()
rounds(1)
time.sleep(SEEN)
status = target.end()
note("bytes", counter("bytes") - first)
sys.exit(status)
