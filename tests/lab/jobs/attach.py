# SPDX-License-Identifier: MIT
"""A program that runs is attached to, forks and makes threads afterwards, and is let go."""

import os
import signal
import subprocess
from pathlib import Path

from labtools import ORACLE, note, ptweave, ptweave_started

target = subprocess.Popen(["gated", "1600"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
assert target.stdin is not None and target.stdout is not None
target.stdout.read(1)
pid = ptweave_started("record", "--pid", str(target.pid), "-o", "run.ptw",
                      without=(target.stdin.fileno(), target.stdout.fileno()))
while not any(path.stat().st_size for path in Path("run.ptw/trace").glob("*.pt")):
    os.write(target.stdin.fileno(), b"g")  # until it is traced
    target.stdout.read(1)
for _ in range(3):
    os.write(target.stdin.fileno(), b"g")
    target.stdout.read(1)
os.kill(pid, signal.SIGINT)
_, raw = os.waitpid(pid, 0)
note("status_of_record", os.waitstatus_to_exitcode(raw))
note("oracle_then", ORACLE.read_text())
os.write(target.stdin.fileno(), b"g")
target.stdout.read(1)
note("alive", target.poll() is None)
target.stdin.close()
note("status_of_target", target.wait())
note("no_process", ptweave("record", "--pid", "4000000"))
