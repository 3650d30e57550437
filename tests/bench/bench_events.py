# SPDX-License-Identifier: MIT
"""`make bench-events`: what recording system calls costs a program, beside the native run and beside other tools.

Three loads: a loop of getppid, read and write (nothing but system calls: the worst case), and two mixed ones: grep, gcc
and find over the project's own source tree (what git tracks, copied: with its build outputs a checkout is another load
each time) five times over, and over the machine's C headers. Each takes its own time, from its first call to its last,
and prints it: what a tool needs to begin and to end is not in it (the whole command of ours is given beside it, with
what it stores after its end). Tools that stop the program at each call run a tenth of the loop, and its time counts ten
times.
Every tool stores what it sees; ours keeps all arguments and what they point to, and must lose nothing.

`sustained` is no ratio: a million calls a second for a minute, with what was lost and how much memory the recorder had
after ten seconds and at the end. `overload` makes calls as fast as it can into a small ring, and holds what is stored
and lost to what the program counts itself.

Arguments (`make bench-events LOADS="sustained overload"`) choose among `calls`, `mixed`, `headers`, `sustained` and
`overload`; each takes less than two minutes on two processors, but for `calls` with its slow peers.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.report import ROOT, Figure, medians_of, write
from tests.support.command import compile_c

ROUNDS = 300_000  # three calls each
TENTH = 10
RUNS = {"calls": 3, "mixed": 9, "headers": 9}
SLOW_SECONDS = 1.0
"""A tool whose run takes longer is run three times only."""
MOST_SECONDS = 60
"""No run of a tool takes so long, or it does not work here."""
RATE, SECONDS = 1_000_000, 60
"""What is sustained: calls a second, for how long."""
WANTED = {"calls": 4.0, "mixed": 1.2, "headers": 1.2}
HEADERS = Path("/usr/include")


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
    native, *others = medians_of([measure.native, *there.values()], RUNS[name], slow=SLOW_SECONDS, few=3)
    found = [Figure(f"{name}: native", native, "s", "", None)]
    found += [Figure(f"{name}: {tool}", seconds, "s", "native", seconds / native,
                     wanted=WANTED[name] if tool == "ptweave events" else None)
              for tool, seconds in zip(there, others, strict=True)]
    if measure.whole:
        whole = sorted(measure.whole)[RUNS[name] // 2]
        found += [Figure(f"{name}: ptweave events, from its start to its end", whole, "s", "", None),
                  Figure(f"{name}: calls recorded in a run", measure.calls, "", "", None),
                  Figure(f"{name}: calls lost by ptweave events", measure.lost, "", "", None, wanted=0)]
    return found


def loop_load(folder: Path) -> Measure:
    loop = compile_c(ROOT / "tests/programs/syscall_count.c", folder / "syscall_count")
    return Measure(folder, [str(loop), "1", str(ROUNDS)], [str(loop), "1", str(ROUNDS // TENTH)])


def tracked_files(folder: Path) -> Path:
    """The project's source tree, as git tracks it."""
    tree = folder / "tree"
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True, text=True)
    for name in listed.stdout.split("\0"):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tree / name)
    return tree


def mixed_load(folder: Path) -> Measure:
    return mixed_over(tracked_files(folder), folder, rounds=5)  # one is less than a tenth of a second: mostly noise


def headers_load(folder: Path) -> Measure:
    return mixed_over(HEADERS, folder)


def mixed_over(tree: Path, folder: Path, rounds: int = 1) -> Measure:
    source = ROOT / "tests/programs/syscall_count.c"
    script = folder / "mixed.bash"
    script.write_text(f"""began=$EPOCHREALTIME
for ((round = 0; round < {rounds}; round++)); do
    grep -r main {tree} > /dev/null
    gcc -O1 -pthread -o {folder}/out {source} || exit 1
    find {tree} -name '*.c' | wc -l
done
ended=$EPOCHREALTIME
took=$(( ${{ended/./}} - ${{began/./}} ))
printf '%d.%06d\\n' $((took / 1000000)) $((took % 1000000))
""")
    return Measure(folder, ["/bin/bash", str(script)])


LOADS: dict[str, Callable[[Path], Measure]] = {"calls": loop_load, "mixed": mixed_load, "headers": headers_load}


# --- nothing lost, or all of it counted -----------------------------------------------------------------------------


@dataclass
class Sustained:
    """What recording calls at a rate came to."""

    rounds: int  # of getppid, read and write, as the program counts them
    seconds: float
    resident: list[int]  # MiB of the recorder, a sample a second
    stream: dict[str, Any]  # of the ledger: system calls

    @property
    def lost(self) -> int:
        return sum(self.stream["lost"].values())

    def miscounted(self) -> int:
        """Calls by which the ledger differs from the program; some dozens are of its start."""
        return abs(self.stream["produced"] - 3 * self.rounds) + abs(
            self.stream["produced"] - self.stream["stored"] - self.lost)


def sustain(folder: Path, rate: int, seconds: int, *options: str) -> Sustained:
    paced = compile_c(ROOT / "tests/programs/paced_calls.c", folder / "paced_calls")
    bundle = folder / f"run-{rate}.ptw"
    recorder = subprocess.Popen(
        [sys.executable, "-m", "ptweave.cli", "events", "-q", "--kinds", "syscall", *options, "-o", str(bundle), "--",
         str(paced), str(rate), str(seconds)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    resident = []
    while recorder.poll() is None:
        time.sleep(1)
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{recorder.pid}/status").read_text())
        resident += [int(found[1]) >> 10] if found else []  # none once it has ended
    out, _ = recorder.communicate()
    rounds, took = out.split()
    stream = json.loads((bundle / "ledger.json").read_text())["streams"]["syscalls/kernel"]
    return Sustained(int(rounds), float(took), resident, stream)


def sustained(folder: Path) -> list[Figure]:
    one = sustain(folder, RATE, SECONDS)
    return [Figure("sustained: calls a second", 3 * one.rounds / one.seconds, "", "", None),
            Figure("sustained: calls lost", one.lost, "", "", None, wanted=0),
            Figure("sustained: calls by which the ledger and the program differ", one.miscounted(), "", "", None),
            Figure("sustained: MiB resident after ten seconds", one.resident[10], "MiB", "", None),
            Figure("sustained: MiB resident at the end, at most", max(one.resident[-10:]), "MiB", "", None)]


def overload(folder: Path) -> list[Figure]:
    one = sustain(folder, 1_000_000_000, 5, "--ring", "65536")
    return [Figure("overload: calls a second", 3 * one.rounds / one.seconds, "", "", None),
            Figure("overload: calls lost", one.lost, "", "", None),
            Figure("overload: calls by which the ledger and the program differ", one.miscounted(), "", "", None)]


COUNTED: dict[str, Callable[[Path], list[Figure]]] = {"sustained": sustained, "overload": overload}


def main() -> None:
    there = [*LOADS, *COUNTED]
    chosen = sys.argv[1:] or there
    if unknown := [name for name in chosen if name not in there]:
        sys.exit(f"bench_events: there is no load {unknown[0]}: give {', '.join(there)}")
    found: list[Figure] = []
    for name in chosen:
        with tempfile.TemporaryDirectory(prefix="bench-events-") as text:
            folder = Path(text)
            found += COUNTED[name](folder) if name in COUNTED else figures(name, LOADS[name](folder))
    write("events" if chosen == there else f"events-{'-'.join(chosen)}", found)


if __name__ == "__main__":
    main()
