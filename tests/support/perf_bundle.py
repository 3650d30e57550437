# SPDX-License-Identifier: MIT
"""The beginning of a thread's trace as a perf.data file: for perf to decode what we decode."""

from __future__ import annotations

import shutil
from pathlib import Path

from ptweave.data.bundle import Bundle
from ptweave.data.sideband import SidebandKind, read_sideband
from support.perf_writer import PerfWriter

PSB = b"\x02\x82" * 8
PID = 100


def perf_data_of(bundle: Bundle, folder: Path, size: int) -> tuple[Path, Path]:
    """About `size` bytes of thread 0's trace, to a PSB; returns the file and the folder with the code (--symfs)."""
    symfs = folder / "sys"
    writer = PerfWriter(mtc=False, cyc=False, per_cpu=False, have_sched_switch=0).comm(PID, PID, "prog")
    for row in read_sideband(bundle.sideband).to_pylist():
        if row["kind"] == SidebandKind.MAP and row["space"] == 0 and row["image"]:
            code = symfs / row["path"].lstrip("/")
            code.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(bundle.images / row["image"], code)
            writer.mmap(PID, row["addr"], row["size"], row["offset"], row["path"])
    packets = (bundle.trace / "0.pt").read_bytes()
    end = packets.find(PSB, min(size, len(packets)))
    writer.auxtrace(packets[:end] if end > 0 else packets, tid=PID, cpu=-1).round()
    return writer.write(folder / "perf.data"), symfs
