# SPDX-License-Identifier: MIT
"""`make bench-events`: what recording system calls costs a program, beside the native run and beside other tools.

Two loads: a loop of getppid, read and write (nothing but system calls: the worst case), and a mixed one (grep, gcc and
find over a source tree). Each takes its own time, from its first call to its last, and prints it: what a tool needs to
begin and to end is not in it (the whole command of ours is given beside it, with what it stores after the program's
end). Tools that stop the program at each call run a tenth of the loop, and its time counts ten times. Every tool stores
what it sees; ours keeps all arguments and what they point to, and must lose nothing.

Arguments choose loads (`calls`, `mixed`); each takes less than two minutes on two processors.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench.report import ROOT, Figure, medians_of, write
from tests.support.command import compile_c

ROUNDS = 300_000  # three calls each
TENTH = 10
RUNS = 3
MOST_SECONDS = 60
"""No run of a tool takes so long, or it does not work here."""
WANTED = {"calls": 4.0, "mixed": 1.2}


class Measure:
    """Runs of tools over a command that prints how many seconds it took, in its last line."""

    def __init__(self, folder: Path, argv: list[str], part: list[str] | None = None) -> None:
        """`part`: a command that does a tenth of it, for slow tools."""
        self.folder, self.argv = folder, argv
        self.part, self.times = (part, TENTH) if part else (argv, 1)
        self.lost = 0
        self.calls = 0
        self.whole: list[float] = []

    def own_seconds(self, words: list[str]) -> float:
        done = subprocess.run(words, capture_output=True, check=True, text=True,
                              timeout=MOST_SECONDS)
        return float(done.stdout.strip().splitlines()[-1])

    def native(self) -> float:
        return self.own_seconds(self.argv)

    def strace(self) -> float:
        return self.times * self.own_seconds(["strace", "-f", "-o", str(self.folder / "strace"), *self.part])

    def perf_record(self) -> float:
        return self.own_seconds(["perf", "record", "-q", "-m", "16M", "-e", "raw_syscalls:*", "-o",
                                 str(self.folder / "perf.data"), *self.argv])

    def perf_trace(self) -> float:
        return self.times * self.own_seconds(["perf", "trace", "-o", str(self.folder / "trace"), *self.part])

    def bpftrace(self) -> float:
        program = "t:raw_syscalls:sys_enter { printf(\"%d %d %d\\n\", tid, args->id, args->args[0]); }"
        return self.times * self.own_seconds(["bpftrace", "-o", str(self.folder / "bpftrace"), "-e", program, "-c",
                                              " ".join(self.part)])

    def ours(self) -> float:
        bundle = self.folder / "run.ptw"
        shutil.rmtree(bundle, ignore_errors=True)
        began = time.perf_counter()
        seconds = self.own_seconds([sys.executable, "-m", "ptweave.cli", "events", "-q", "--kinds", "syscall", "-o",
                                    str(bundle), "--", *self.argv])
        self.whole.append(time.perf_counter() - began)
        stream = json.loads((bundle / "ledger.json").read_text())["streams"]["syscalls/kernel"]
        self.lost += sum(stream["lost"].values())
        self.calls = stream["produced"]
        return seconds


def works(name: str, tool: str, measure: Callable[[], float]) -> bool:
    try:
        measure()
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        print(f"{name}: {tool} is not here or does not work ({error.__class__.__name__}): not measured")
        return False
    return True


def figures(name: str, measure: Measure) -> list[Figure]:
    tools = {"ptweave events": measure.ours, "strace -f": measure.strace, "perf record": measure.perf_record,
             "perf trace": measure.perf_trace, "bpftrace": measure.bpftrace}
    there = {tool: run for tool, run in tools.items() if works(name, tool, run)}
    measure.lost = 0
    measure.whole.clear()
    native, *others = medians_of([measure.native, *there.values()], RUNS)
    found = [Figure(f"{name}: native", native, "s", "", None)]
    found += [Figure(f"{name}: {tool}", seconds, "s", "native", seconds / native,
                     wanted=WANTED[name] if tool == "ptweave events" else None)
              for tool, seconds in zip(there, others, strict=True)]
    if measure.whole:
        whole = sorted(measure.whole)[RUNS // 2]
        found += [Figure(f"{name}: ptweave events, from its start to its end", whole, "s", "", None),
                  Figure(f"{name}: calls recorded in a run", measure.calls, "", "", None),
                  Figure(f"{name}: calls lost by ptweave events", measure.lost, "", "", None, wanted=0)]
    return found


def loop_load(folder: Path) -> Measure:
    loop = compile_c(ROOT / "tests/programs/syscall_count.c", folder / "syscall_count")
    return Measure(folder, [str(loop), "1", str(ROUNDS)], [str(loop), "1", str(ROUNDS // TENTH)])


def mixed_load(folder: Path) -> Measure:
    source = ROOT / "tests/programs/syscall_count.c"
    script = folder / "mixed.bash"
    script.write_text(f"""began=$EPOCHREALTIME
grep -r main {ROOT}/tests {ROOT}/wrapper > /dev/null
gcc -O1 -pthread -o {folder}/out {source} || exit 1
find {ROOT} -name '*.c' | wc -l
ended=$EPOCHREALTIME
took=$(( ${{ended/./}} - ${{began/./}} ))
printf '%d.%06d\\n' $((took / 1000000)) $((took % 1000000))
""")
    return Measure(folder, ["/bin/bash", str(script)])


LOADS: dict[str, Callable[[Path], Measure]] = {"calls": loop_load, "mixed": mixed_load}


def main() -> None:
    chosen = sys.argv[1:] or list(LOADS)
    if unknown := [name for name in chosen if name not in LOADS]:
        sys.exit(f"bench_events: there is no load {unknown[0]}: give {', '.join(LOADS)}")
    found: list[Figure] = []
    for name in chosen:
        with tempfile.TemporaryDirectory(prefix="bench-events-") as text:
            found += figures(name, LOADS[name](Path(text)))
    write("events" if len(chosen) == len(LOADS) else f"events-{'-'.join(chosen)}", found)


if __name__ == "__main__":
    main()
