# SPDX-License-Identifier: MIT
"""Flight recorders of threads that are processes: asked for a snapshot while all wait, with rings that hold all and
with smaller ones, at the same addresses; and at a crash."""

import ctypes
import os
import signal
import time

from labtools import ORACLE, SEEN, Gated, look_often, note, record

ADDR_NO_RANDOMIZE = 0x0040000
THREADS = 4
look_often()
ctypes.CDLL(None).personality(ADDR_NO_RANDOMIZE)
os.environ["LD_BIND_NOW"] = "1"  # else the thread that calls a function first executes more than the others

for name, size in (("whole", "1M"), ("small", "8K")):
    ORACLE.write_text("0")
    target = Gated("--snapshot", f"--aux-size={size}", "--threads=process", program="waiting", rounds=3000, name=name)
    for _ in range(THREADS):
        target.done()
    ran = ""
    while ran != (ran := ORACLE.read_text()):  # until all wait
        time.sleep(SEEN)
    note(f"oracle_{name}", ran)
    os.kill(target.pid, signal.SIGUSR2)
    while not target.size:
        time.sleep(SEEN)
    note(name, target.end())
ORACLE.write_text("0")
note("crashed", record("--snapshot", "--aux-size=1M", "--threads=process", "--", "late", "3000", "000",
                       "crash", name="crashed"))
note("oracle_crashed", ORACLE.read_text())
note("segv", -int(signal.SIGSEGV))
