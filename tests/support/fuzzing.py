# SPDX-License-Identifier: MIT
"""The fuzzer of the decoders (tests/fuzz) and what it damages: golden cases, random programs, reference traces."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from support import golden
from support.assembler import ROOT, compile_c
from support.random_program import random_run
from support.reference_traces import CaseError, cases
from support.trace_bundle import TraceBundle

SOURCES = ROOT / "decode" / "src"
FUZZ = ROOT / "tests" / "fuzz"
FEW_NODES = "-DPTD_TRAIL_NODES=4096"
"""A decoder's memory of runs is 64 MB, of which short traces use kilobytes; AddressSanitizer marks all of it when it is
taken and again when it is freed, which takes ten times as long as decoding."""
MAX_TRACE = 1 << 14
"""Longer reference traces are left out: most of an input would be what was tried before."""
FLAGS = ("-std=gnu11", "-g", "-Werror", f"-I{SOURCES}", FEW_NODES, "-fsanitize=address,undefined",
         "-fno-sanitize-recover=all")


def build_ours(folder: Path) -> Path:
    """What every fuzzer has in it, as one object file: our decoders with AddressSanitizer and UBSan."""
    others = ("evl", "dump", "demangle")
    first, *more = [path for path in sorted(SOURCES.glob("*.c"))
                    if not path.stem.startswith(others) and path.stem != "join"]
    return compile_c(first, folder / "ours.o", *FLAGS, "-r", "-nostdlib", *map(str, more))


def build(folder: Path, common: Path, decoders: str | None = None) -> Path:
    """The fuzzer, of what `build_ours` made; `decoders` replaces the text of its decoders.c."""
    table = FUZZ / "decoders.c"
    if decoders is not None:
        table = folder / "decoders.c"
        table.write_text(decoders)
    return compile_c(FUZZ / "fuzz_decode.c", folder / "fuzz_decode", *FLAGS, f"-I{FUZZ}", str(table), str(common),
                     "-lipt")


def corpus(folder: Path, *, programs: int = 6, references: bool = True) -> list[Path]:
    """Entries of the fuzzer below `folder`."""
    found = [_golden(folder, name) for name in golden.texts() if golden.load(name).trace]
    for seed in range(programs):
        machine = random_run(9000 + seed, folder / f"program-{seed}", steps=300 + 100 * seed)
        code = folder / f"program-{seed}.bin"
        code.write_bytes(machine.code.data)
        found.append(_entry(folder, f"program-{seed}", bytes(machine.packets.data), None,
                            [(code, 0, len(machine.code.data), machine.code.base)]))
    for number, case in enumerate(cases() if references else []):
        if case.truth is None or case.trace["bytes"] > MAX_TRACE:
            continue
        try:
            bundle = case.bundle(folder / f"reference-{number}.ptw")
            found.append(_reference(folder, number, bundle, case.options().cpu))
        except CaseError:
            continue  # the reference test itself says so
    return found


def _golden(folder: Path, name: str) -> Path:
    case = golden.load(name)
    pieces = []
    for number, piece in enumerate(case.program.pieces):
        if piece.kept:
            file = folder / f"{name}-{number}.bin"
            file.write_bytes(piece.data)
            pieces.append((file, 0, len(piece.data), piece.address))
    return _entry(folder, name, case.trace, case.cpu, pieces)


def _reference(folder: Path, number: int, bundle: TraceBundle, cpu: tuple[int, int, int] | None) -> Path:
    pieces = []
    for row in bundle.rows:
        if row["kind"] == "map":
            file = folder / f"image-{row['image']}"
            file.write_bytes(bundle.files[str(row["image"])])
            pieces.append((file, int(str(row["offset"])), int(str(row["size"])), int(str(row["addr"]))))
    return _entry(folder, f"reference-{number}", bundle.traces[0], cpu, pieces)


def _entry(folder: Path, name: str, trace: bytes, cpu: tuple[int, int, int] | None,
           pieces: Iterable[tuple[Path, int, int, int]]) -> Path:
    (folder / f"{name}.pt").write_bytes(trace)
    lines = [f"trace {folder / name}.pt"]
    if cpu:
        lines.append("cpu {} {} {}".format(*cpu))
    lines += [f"code {file} {offset} {size} {address}" for file, offset, size, address in pieces]
    entry = folder / f"{name}.txt"
    entry.write_text("\n".join(lines) + "\n")
    return entry


def run(fuzzer: Path, first: int, count: int, entries: Iterable[Path], seconds: float) -> str:
    """Run inputs; what the fuzzer printed. An assertion with its message when a rule is broken."""
    done = subprocess.run([fuzzer, str(first), str(count), *entries], capture_output=True, text=True, timeout=seconds,
                          check=False)
    assert done.returncode == 0, f"status {done.returncode}: {done.stdout}{done.stderr[-4000:]}"
    return done.stdout
