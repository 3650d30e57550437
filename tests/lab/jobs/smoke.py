# SPDX-License-Identifier: MIT
"""What the PMU says of itself, and the digests of the project's files as the machine has them."""

import hashlib
from pathlib import Path

from labtools import note

from ptweave.wrapper import host

for name in ("type", "format/tsc", "caps/psb_periods"):
    with open(f"/sys/bus/event_source/devices/intel_pt/{name}") as file:
        note(name.replace("/", "-"), file.read().strip())
note("vendor", host.cpu().vendor)
files = [file for room in Path("/in/path").read_text().split(":")
         for pattern in ("*.py", "libtthread.so") for file in sorted(Path(room).rglob(pattern))]
lines = (f"{hashlib.blake2b(file.read_bytes()).hexdigest()} {file.relative_to('/in')}" for file in files)
note("project", "\n".join(lines))
