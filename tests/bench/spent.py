# SPDX-License-Identifier: MIT
"""What a command spent, measured from a process that has spent nothing itself.

A child's greatest memory (`ru_maxrss`) begins with that of the process it was forked from: whoever has read a large
table before would find that in the figure.

Python may keep what it compiled of our modules, as it does for users, whatever the environment of the benchmark says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

_MEASURE = """
import json, os, sys, time
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
began = time.perf_counter()
pid = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(pid, 0)
found = [os.waitstatus_to_exitcode(status), time.perf_counter() - began, usage.ru_utime + usage.ru_stime,
         usage.ru_maxrss / 1024]
os.write(int(sys.argv[1]), json.dumps(found).encode())
"""


@dataclass(frozen=True)
class Spent:
    """A command's exit status, wall-clock seconds, processor seconds with its children's, and greatest memory (MB)."""

    status: int
    wall: float
    cpu: float
    memory: float


def spent(argv: Sequence[str | os.PathLike[str]], **how: int) -> Spent:
    """Run a command; `how` is what subprocess.run takes, for its standard streams."""
    read, write = os.pipe()
    with open(read, encoding="ascii") as answer:
        try:
            subprocess.run([sys.executable, "-I", "-S", "-c", _MEASURE, str(write), *argv], pass_fds=[write],
                           check=True, **how)  # type: ignore[call-overload]
        finally:
            os.close(write)
        status, wall, cpu, memory = json.load(answer)
    return Spent(status, wall, cpu, memory)
