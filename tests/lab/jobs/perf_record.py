# SPDX-License-Identifier: MIT
"""The same program recorded by perf record and by us, at the same addresses."""

import ctypes
import os
import subprocess
from pathlib import Path

from labtools import note, ptweave

ADDR_NO_RANDOMIZE = 0x0040000
PROGRAM = ("/in/bin/deterministic-static", "3000")
QUICK = ("--no-buildid-cache", "--no-bpf-event")
"""Neither changes what is recorded here: a copy of the program for later, and the listening for what none loads."""

ctypes.CDLL(None).personality(ADDR_NO_RANDOMIZE)
note("perf", subprocess.run(["/usr/bin/perf", "record", "-q", *QUICK, "-o", "perf.data", "-e", "intel_pt//u", "--",
                             *PROGRAM], check=False).returncode)
note("oracle_perf", Path("/proc/ptlab").read_text())
Path("/proc/ptlab").write_text("0")
note("ours", ptweave("record", "--engine", "intel_pt", "-q", "-o", "run.ptw", "--", *PROGRAM))
os.makedirs("symfs/in/bin")
Path("symfs/in/bin/deterministic-static").write_bytes(Path(PROGRAM[0]).read_bytes())
