# SPDX-License-Identifier: MIT
"""`make bench-decode`: both decoders into Parquet, beside a bare loop over libipt's blocks: same packets, same code.

Times are CPU seconds of the process, so that what else the machine does matters little; one process, one core. The
recordings are made here (gzip, python3, sqlite3, gcc; random branches are written), unless PTWEAVE_BENCH names a
folder of finished bundles (`NAME.ptw`): those are copied, never written to. `gigabyte` is python3 again, until its
packets are 1 GB: what that takes of memory, and what two processes make of it.

`python -m tests.bench.bench_decode NAME…` measures those alone (into build/bench/decode-NAME.json); PTWEAVE_BENCH_RUNS
says how often (3).
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench.report import ROOT, Figure, medians_of, write

sys.path.insert(0, str(ROOT / "tests"))

from ptweave.data import Clocks, Exit, State, Times
from ptweave.data.bundle import Bundle
from ptweave.data.lean_arrow import ENVIRONMENT
from ptweave.decode.flow import decode_flow
from ptweave.decode.task import Decoder
from support.assembler import assemble
from support.engine import record, threads, write_plan
from support.inputs import text_file
from support.perf_bundle import perf_data_of
from support.pt_writer import PtWriter
from support.trace_bundle import TraceBundle

RUNS = int(os.environ.get("PTWEAVE_BENCH_RUNS", "3"))
PERF_BYTES = 4_000_000
TABLES = ("flow", "clock", "pt_events", "gaps", "paths", "blocks")
SQL = ("create table t(a,b); with recursive c(x) as (select 1 union all select x+1 from c where x<300000) "
       "insert into t select x, x*x%97 from c; select count(*), sum(a*b) from t where b>7;")
GIGABYTE = "gigabyte"


def commands(folder: Path) -> dict[str, list[str]]:
    """What is recorded: one to two billion instructions each, of which what does not grow with them is little."""
    (folder / "source.c").write_text('#include <stdio.h>\n#include <stdlib.h>\n#include <math.h>\n' + "".join(
        f"double f{i}(double x) {{ double s = {i}; for (int j = 0; j < x; j++) s += j % {i + 2} ? x / s : sin(s); "
        f"return s; }}\n" for i in range(60)))
    return {
        "gzip": ["gzip", "-c", str(text_file(folder / "text", 10_000_000))],
        "python": python(750_000),
        "sqlite": ["sqlite3", ":memory:", SQL],
        "gcc": ["gcc", "-O2", "-c", "-o", str(folder / "source.o"), str(folder / "source.c")],
        GIGABYTE: python(3_000_000),
    }


def python(entries: int) -> list[str]:
    return [sys.executable, "-S", "-c", f"print(len({{str(i): hash(i) % 7 for i in range({entries})}}))"]


def adversarial(folder: Path) -> Bundle:
    """Every branch goes anywhere: what a cache of paths is worst at."""
    chance = random.Random(1)
    count = 64
    text = "\n".join(f"i{n}: {'nop' if chance.random() < 0.5 else 'xor %eax, %eax'}\njz i{chance.randrange(count)}"
                     for n in range(count)) + "\njmp i0"
    code = assemble(text, folder)
    packets = PtWriter().psb_plus(tsc=1).mode_exec().pge(code["i0"])
    for number in range(400_000):
        bits = "".join(chance.choice("!.") for _ in range(47))
        packets.tnt_long(bits)
        if number % 1000 == 999:  # where execution stands nobody has worked out: tracing is turned off and on again
            packets.pgd().psb_plus(tsc=number).mode_exec().pge(code["i0"])
    return TraceBundle(folder / "adversarial.ptw").map(code.data, code.base).thread(packets.pgd().data).write()


def bundles(folder: Path, wanted: list[str]) -> dict[str, Bundle]:
    """The bundles of those names, of all when there are none."""
    found: dict[str, Bundle] = {}
    given = os.environ.get("PTWEAVE_BENCH")
    for name, argv in commands(folder).items():
        if wanted and name not in wanted:
            continue
        path = Path(given or "/nonexistent") / f"{name}.ptw"
        if path.is_dir():
            copy = folder / path.name
            subprocess.run(["cp", "-r", path, copy], check=True)
            subprocess.run(["chmod", "-R", "u+w", copy], check=True)
            found[name] = Bundle.open(copy)
        else:
            found[name] = record(argv, folder, name=name)
            found[name].manifest.clocks = Clocks(0, 0, 1 << 40, 1 << 40)
            found[name].manifest.state = State.COMPLETE  # the supervisor says so; there is none here
            found[name].save_manifest()
    if not wanted or "adversarial" in wanted:
        found["adversarial"] = adversarial(folder)
    return found


class Bare:
    """The loop that does nothing with what it decodes."""

    def __init__(self, bundle: Bundle, folder: Path, *flags: str) -> None:
        self.bundle, self.folder, self.flags = bundle, folder, flags
        self.blocks = self.errors = 0
        self.program = folder / "bench_blocks"
        if not self.program.exists():
            subprocess.run(["gcc", "-O2", "-o", self.program, ROOT / "tests/programs/bench_blocks.c", "-lipt"],
                           check=True)

    def __call__(self) -> float:
        seconds, self.blocks = 0.0, 0
        for thread in threads(self.bundle):
            plan = self.folder / "plan"
            write_plan(self.bundle, thread, plan)
            done = subprocess.run([self.program, *self.flags, self.bundle.trace / f"{thread}.pt", plan], check=True,
                                  capture_output=True, text=True)
            fields = done.stdout.split()
            seconds += float(fields[0])
            self.blocks += int(fields[1])
            self.errors += int(fields[3])
        return seconds


def into_parquet(bundle: Bundle, decoder: Decoder) -> Callable[[], float]:
    def measure() -> float:
        begin = time.process_time()
        decode_flow(bundle, decoder=decoder)
        return time.process_time() - begin
    return measure


def bytes_of(bundle: Bundle) -> int:
    return sum(file.stat().st_size for table in TABLES for file in (bundle.tables / table).rglob("*.parquet"))


def cpu_of(words: list[str | Path]) -> float:
    """CPU seconds of a command."""
    before = os.times()
    subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def beside_perf(name: str, bundle: Bundle, folder: Path) -> list[Figure]:
    """`perf script --itrace=b` on the first megabytes as perf.data, and we on the same file, imported."""
    if shutil.which("perf") is None:
        return []
    file, symfs = perf_data_of(bundle, folder / f"{name}-perf", PERF_BYTES)
    run = folder / f"{name}-perf.ptw"
    subprocess.run([sys.executable, "-m", "ptweave.cli", "import", "perf", "-q", file, "--symfs", symfs, "-o", run],
                   stderr=subprocess.DEVNULL, check=True)
    imported = Bundle.open(run)

    def perf() -> float:
        return cpu_of(["perf", "script", "--itrace=b", "-i", file, "--symfs", symfs])

    def full() -> float:
        imported.manifest.times = Times.FULL
        return into_parquet(imported, Decoder.AUTO)()

    def tsc() -> float:
        imported.manifest.times = Times.TSC
        return into_parquet(imported, Decoder.AUTO)()

    base, exact, coarse = medians_of([perf, full, tsc], RUNS)
    return [
        Figure(f"{name} perf.data, perf script --itrace=b", base, "s", "", None),
        Figure(f"{name} perf.data into Parquet, times as perf's", exact, "s", "perf script", base / exact),
        Figure(f"{name} perf.data into Parquet, --times tsc", coarse, "s", "perf script", base / coarse),
    ]


DECODING = """
import re, sys
from ptweave.cli.__main__ import command
sys.argv = ["ptweave", "decode", "-q", "-j", "1", sys.argv[1]]
status = command()
print(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1])
sys.exit(status)
"""
"""Tells its own peak: the one that wait4 gives counts what a process was before its exec, which is a copy of us."""


def peak_memory(name: str, bundle: Bundle, wanted: float | None = None) -> Figure:
    """What `ptweave decode -j 1` takes at most, resident; pages of files included."""
    done = subprocess.run([sys.executable, "-c", DECODING, bundle.path], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, check=False)
    if done.returncode not in (Exit.DONE, Exit.INCOMPLETE):  # recordings of others may have gaps
        raise SystemExit(f"{bundle.path}: cannot be decoded")
    return Figure(f"{name} paths into Parquet, peak memory", int(done.stdout) / 1000, "MB", "", None, wanted=wanted)


def two_processes(name: str, bundle: Bundle, decoders: tuple[Decoder, ...] = (Decoder.LIBIPT, Decoder.PATHS)
                  ) -> list[Figure]:
    """Wall time with one and with two processes: means something where two processors are free."""
    def wall(jobs: int, decoder: Decoder) -> Callable[[], float]:
        def measure() -> float:
            begin = time.monotonic()
            decode_flow(bundle, jobs=jobs, decoder=decoder)
            return time.monotonic() - begin
        return measure

    figures = []
    for decoder in decoders:
        one, two = medians_of([wall(1, decoder), wall(2, decoder)], RUNS)
        figures.append(Figure(f"{name} {decoder.value}, two processes", two, "s", "one process", one / two))
    return figures


def gigabyte(bundle: Bundle) -> list[Figure]:
    packets = sum(file.stat().st_size for file in bundle.trace.iterdir()) / 1e6
    return [Figure(f"{GIGABYTE} packets", packets, "MB", "", None), peak_memory(GIGABYTE, bundle, wanted=500),
            *two_processes(GIGABYTE, bundle, (Decoder.PATHS,))]


def measure(name: str, bundle: Bundle, folder: Path) -> list[Figure]:
    bare = Bare(bundle, folder)
    base, long, libipt, paths = medians_of([bare, Bare(bundle, folder, "-l"), into_parquet(bundle, Decoder.LIBIPT),
                                            into_parquet(bundle, Decoder.PATHS)], RUNS)
    figures = [
        Figure(f"{name} bare loop", base, "s", "", None),
        Figure(f"{name} bare loop, blocks across calls and jumps", long, "s", "bare loop", base / long),
        Figure(f"{name} libipt into Parquet", libipt, "s", "bare loop", base / libipt),
        Figure(f"{name} paths into Parquet", paths, "s", "bare loop", base / paths),
        Figure(f"{name} tables", bytes_of(bundle) / bare.blocks, "B", "block", None),
        Figure(f"{name} blocks", bare.blocks / 1e6, "M", "", None),
        peak_memory(name, bundle),
    ]
    if name == "gzip":
        figures += beside_perf(name, bundle, folder)
    if name == "gcc":
        figures += two_processes(name, bundle)
    return figures


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        folder = Path(scratch)
        figures: list[Figure] = []
        wanted = sys.argv[1:]
        for name, bundle in bundles(folder, wanted).items():
            figures += gigabyte(bundle) if name == GIGABYTE else measure(name, bundle, folder)
        write("-".join(["decode", *wanted]), figures)


if __name__ == "__main__":
    if not ENVIRONMENT.keys() <= os.environ.keys():  # as the commands have it: it is read when pyarrow is loaded
        os.execve(sys.executable, [*sys.orig_argv], ENVIRONMENT | os.environ)
    main()
