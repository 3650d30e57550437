# SPDX-License-Identifier: MIT
"""What Debian's `perf script` makes of a perf.data file: an oracle that shares nothing with our decoder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

LINE = re.compile(r"^ *.*? +(?P<tid>-?\d+) +(?:\[-?\d+\] )? *(?P<s>\d+)\.(?P<ns>\d{9}):[ \t]+(?P<ip>[0-9a-f]+).*"
                  r"|^(?P<error>.*error.*)", re.MULTILINE)
"""A line that tells of an instruction, or else of an error."""


class Ran(NamedTuple):
    """One instruction."""

    tid: int
    time: int
    ip: int


def available() -> bool:
    return shutil.which("perf") is not None


def script(file: Path, symfs: Path, *more: str) -> tuple[list[Ran], list[str]]:
    """Every instruction perf finds, in its order, and its error lines. What was piped out must be piped in again."""
    piped = file.is_file() and file.read_bytes()[8:16] == (16).to_bytes(8, "little")
    done = subprocess.run(
        ["perf", "script", "-i", "-" if piped else file, "--symfs", symfs, "--itrace=i0nse", "--ns", "-F",
         "comm,tid,cpu,time,ip", *more],
        capture_output=True, timeout=300, input=file.read_bytes() if piped else b"",
        env={"PATH": os.environ["PATH"], "HOME": str(file.parent), "LC_ALL": "C"})
    ran: list[Ran] = []
    errors: list[str] = []
    for tid, seconds, ns, ip, error in LINE.findall(done.stdout.decode("utf-8", "replace")):
        if error:
            errors.append(error.strip())
        elif int(ip, 16):  # else it is a sample of a tracepoint
            ran.append(Ran(int(tid), int(seconds + ns), int(ip, 16)))
    if done.returncode:
        errors.append(done.stderr.decode("utf-8", "replace").strip())
    return ran, errors
