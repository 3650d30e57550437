# SPDX-License-Identifier: MIT
"""A flight recorder that is asked for snapshots: after many rings' worth of packets, during which it stood still, soon
after, and late again."""

import os
import signal
import sys
import time

from labtools import ORACLE, SEEN, Gated, counter, look_often, note

look_often()
first = counter("bytes")
target = Gated("--snapshot", "--aux-size=64K", rounds=640)
target.done()
target.quiet()
parts = 0


def rounds(count: int) -> None:
    """Each is a part of its own to the module."""
    global parts
    for _ in range(count):
        ORACLE.write_text("0")
        target.again()
        target.quiet()
        note(f"part{parts}", ORACLE.read_text())
        parts += 1


def ask() -> None:
    before = target.size
    os.kill(target.pid, signal.SIGUSR2)
    while target.size == before:
        time.sleep(SEEN)
    time.sleep(SEEN)
    note(f"stored{parts}", target.size)


os.kill(target.pid, signal.SIGSTOP)
rounds(14)
os.kill(target.pid, signal.SIGCONT)
ask()
rounds(2)
ask()
rounds(13)
ask()
rounds(1)
status = target.end()
note("bytes", counter("bytes") - first)
sys.exit(status)
