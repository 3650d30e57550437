# SPDX-License-Identifier: MIT
"""LLDB trace bundles written by hand."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from support.assembler import Code
from support.elf_writer import ElfWriter
from support.pt_writer import PtWriter

BASE = 0x400000
TEXT = 0x1000
BUILD_ID = bytes(range(20))
UUID = "00010203-0405-0607-0809-0A0B0C0D0E0F-10111213"
CONVERSION = {"timeMult": 1 << 30, "timeShift": 31, "timeZero": "0x64"}  # two ticks a nanosecond, from 100 ns on


def module_file(code: Code, build_id: bytes = BUILD_ID) -> bytes:
    """A shared object with `code` at TEXT."""
    writer = ElfWriter(type=3).segment(0, 0, 64, 4).segment(64 + 2 * 56, TEXT, len(code.data))
    return writer.add(".text", code.data, address=TEXT).build_id(build_id).data()


def packets(code: Code, tsc: int | None = None, bits: str = "!.") -> bytes:
    """Packets of a run through `code`."""
    return bytes(PtWriter().psb_plus(tsc=tsc).mode_exec().pge(BASE + TEXT + code["loop"] - code.base).tnt(bits).pgd()
                 .data)


def description(**more: Any) -> dict[str, Any]:
    """A trace.json as LLDB writes it, for one process with one thread; `more` replaces members (None: leaves out)."""
    whole = {
        "type": "intel-pt", "cpuInfo": {"vendor": "GenuineIntel", "family": 6, "model": 79, "stepping": 1},
        "processes": [{"pid": 10, "triple": "x86_64-*-linux", "threads": [{"tid": 11, "iptTrace": "11.trace"}],
                       "modules": [{"systemPath": "/usr/lib/libx.so", "file": "modules/libx.so",
                                    "loadAddress": BASE, "uuid": UUID}]}]}
    return {name: value for name, value in {**whole, **more}.items() if value is not None}


def write_bundle(folder: Path, code: Code, content: dict[str, Any] | str | bytes) -> Path:
    """The folder with its files; returns the path of trace.json."""
    (folder / "modules").mkdir(parents=True)
    (folder / "modules" / "libx.so").write_bytes(module_file(code))
    (folder / "11.trace").write_bytes(packets(code))
    path = folder / "trace.json"
    if isinstance(content, dict):
        content = json.dumps(content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def switch(pid: int, tid: int, ns: int, *, out: bool = False) -> bytes:
    """A PERF_RECORD_SWITCH_CPU_WIDE with sample_id (TID, TIME)."""
    return struct.pack("<IHHIIIIQ", 15, (1 << 13) * out, 32, 0, 0, pid, tid, ns)
