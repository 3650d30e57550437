# SPDX-License-Identifier: MIT
"""What Debian's `perf script` makes of a perf.data file: an oracle that shares nothing with our decoder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

LINE = re.compile(r"^ *(?P<comm>.*?) +(?P<tid>-?\d+) +(?:\[(?P<cpu>-?\d+)\] )? *(?P<s>\d+)\.(?P<ns>\d{9}):"
                  r"\s+(?P<ip>[0-9a-f]+)")


@dataclass(frozen=True)
class Ran:
    """One instruction."""

    tid: int
    time: int
    ip: int


def available() -> bool:
    return shutil.which("perf") is not None


def script(file: Path, symfs: Path, *more: str) -> tuple[list[Ran], list[str]]:
    """Every instruction perf finds, in its order, and its error lines. What was piped out must be piped in again."""
    piped = file.read_bytes()[8:16] == (16).to_bytes(8, "little")
    done = subprocess.run(
        ["perf", "script", "-i", "-" if piped else file, "--symfs", symfs, "--itrace=i0nse", "--ns", "-F",
         "comm,tid,cpu,time,ip", *more],
        capture_output=True, timeout=300, input=file.read_bytes() if piped else b"",
        env={"PATH": os.environ["PATH"], "HOME": str(file.parent), "LC_ALL": "C"})
    ran: list[Ran] = []
    errors: list[str] = []
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        found = LINE.match(line)
        if found:
            ran.append(Ran(int(found["tid"]), int(found["s"]) * 10**9 + int(found["ns"]), int(found["ip"], 16)))
        elif "error" in line:
            errors.append(line.strip())
    if done.returncode:
        errors.append(done.stderr.decode("utf-8", "replace").strip())
    return ran, errors
