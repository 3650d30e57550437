# SPDX-License-Identifier: MIT
"""Reads what an instrumented program wrote of its own accesses (tests/truth/truth.h), and compiles such programs."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = ROOT / "tests" / "truth"
VARIABLE = "PTWEAVE_TRUTH"

MAGIC = 0x31485455525457
THREADS, REGIONS = 4096, 1024
HEADER_SIZE = CHUNK_SIZE = 1 << 20
ROW_MAGIC = 0x54574F52
PAGE = 4096
BITS = PAGE // 8

_HEADER = np.dtype([("magic", "<u8"), ("threads", "<u4"), ("regions", "<u4"), ("chunks", "<u4"), ("lost", "<u4")])
THREAD = np.dtype([("pid", "<u4"), ("tid", "<u4"), ("begin", "<u8"), ("end", "<u8"), ("stack_low", "<u8"),
                   ("stack_high", "<u8"), ("moved_low", "<u8"), ("moved_high", "<u8"), ("epochs", "<u8")])
REGION = np.dtype([("start", "<u8"), ("end", "<u8"), ("kind", "<u8")])
ROW = np.dtype([("magic", "<u4"), ("thread", "<u4"), ("epoch", "<u8"), ("begin", "<u8"), ("end", "<u8"),
                ("page", "<u8"), ("read", "u1", BITS), ("write", "u1", BITS), ("changed", "u1", BITS)])

Array = npt.NDArray[Any]


class Kind(IntEnum):
    """What lies in a region of the program's address space."""

    READ_ONLY = 1
    RUNTIME = 2
    OWN = 3
    GLOBALS = 4


UNTRACKED = frozenset({Kind.READ_ONLY, Kind.RUNTIME, Kind.OWN})
"""Regions whose accesses are nobody's promise: code and constants, libc's own data, the checker's."""


@dataclass(frozen=True)
class Truth:
    """What really happened. `rows` (dtype ROW) are sorted by thread and epoch; bit b of byte i of `read`, `write` and
    `changed` is byte 8 i + b of the page at address `page`. Times are TSC."""

    threads: Array
    regions: Array
    rows: Array

    def tracked(self) -> Array:
        """The rows of pages that are somebody's promise."""
        keep = np.ones(len(self.rows), bool)
        for region in self.regions:
            if int(region["kind"]) in UNTRACKED:
                keep &= (self.rows["page"] < region["start"]) | (self.rows["page"] >= region["end"])
        return self.rows[keep]

    def on_own_stack(self, rows: Array) -> Array:
        """Of each row, whether its page lies in the stack of the thread that accessed it."""
        owner, page = self.threads[rows["thread"]], rows["page"]
        return ((page + PAGE > owner["stack_low"]) & (page < owner["stack_high"])
                | (page + PAGE > owner["moved_low"]) & (page < owner["moved_high"]))


def read_truth(path: Path) -> Truth:
    """Read a whole file. Raises AssertionError when it is not the whole truth."""
    with path.open("rb") as file:
        head = np.frombuffer(file.read(_HEADER.itemsize), _HEADER)[0]
        assert head["magic"] == MAGIC, f"{path} was not written by tests/truth"
        assert head["lost"] == 0, f"{head['lost']} chunks found no room in {path}"
        threads = np.frombuffer(file.read(THREADS * THREAD.itemsize), THREAD)[:int(head["threads"])]
        regions = np.frombuffer(file.read(REGIONS * REGION.itemsize), REGION)[:int(head["regions"])]
        chunks = []
        for chunk in range(int(head["chunks"])):
            file.seek(HEADER_SIZE + chunk * CHUNK_SIZE)
            rows = np.frombuffer(file.read(CHUNK_SIZE // ROW.itemsize * ROW.itemsize), ROW)
            ends = np.flatnonzero(rows["magic"] != ROW_MAGIC)
            chunks.append(rows[:ends[0]] if len(ends) else rows)
    rows = np.concatenate(chunks) if chunks else np.zeros(0, ROW)
    return Truth(threads, regions, rows[np.lexsort((rows["epoch"], rows["thread"]))])


def compile_runtime(folder: Path) -> Path:
    """One object file of the runtime's sources."""
    out = folder / "truth.o"
    if not out.exists():
        subprocess.run(["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-ftls-model=initial-exec", "-r",
                        "-nostdlib", "-o", out, *sorted(RUNTIME.glob("*.c"))], check=True)
    return out


def compile_instrumented(source: Path, folder: Path, *flags: str) -> Path:
    """The program of one C file, with every access instrumented."""
    out = folder / source.stem
    if out.exists():
        return out
    runtime, object_file = compile_runtime(folder), folder / f"{source.stem}.o"
    subprocess.run(["gcc", "-std=gnu11", "-O1", "-g", "-fsanitize=thread", "-fno-builtin", "-U_FORTIFY_SOURCE", *flags,
                    "-c", "-o", object_file, source], check=True)
    names = subprocess.run(["nm", "--defined-only", runtime], check=True, capture_output=True, text=True).stdout
    renames = [word for name in re.findall(r" T truth_(\w+)", names)
               for word in ("--redefine-sym", f"{name}=truth_{name}")]
    subprocess.run(["objcopy", *renames, object_file], check=True)
    subprocess.run(["gcc", "-pthread", "-o", out, object_file, runtime, "-lm"], check=True)
    return out
