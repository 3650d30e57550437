# SPDX-License-Identifier: MIT
"""`make demo`: wrap a real program, check that it was not disturbed, and ask the record what it did.

Every command it runs is printed first, so that each can be typed again.
"""

from __future__ import annotations

import gzip
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.support.inputs import text_file

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / "build" / "demo"
INPUT_BYTES = 6_000_000

QUESTIONS = (
    ("Instructions, blocks and branches per thread", """
        select thread, tid, start_function, instructions, blocks, branches, gaps from threads order by thread"""),
    ("The ten hottest functions", """
        select function, sum(instructions) as instructions, sum(calls) as calls, round(sum(time) / 1e6, 1) as ms
        from profile join stacks using (stack) group by function order by instructions desc limit 10"""),
    ("Thunks and lock waits per thread", """
        select thread, count(*) as thunks,
               count(*) filter (operation in ('mutex_lock', 'cond_wait', 'cond_timedwait')) as lock_operations,
               round(coalesce(sum(wait) filter (operation in ('mutex_lock', 'cond_wait', 'cond_timedwait')), 0)
                     / 1e6, 1) as waited_ms,
               count(*) filter (placed = 'exact') as placed_exactly
        from thunks group by thread order by thread"""),
    ("System calls by count and time", """
        select name, count(*) as calls, round(coalesce(sum(t_exit - t_enter), 0) / 1e6, 2) as ms,
               count(errno) as failed, count(*) filter (placed = 'exact') as placed_exactly
        from syscalls group by name order by calls desc, name limit 12"""),
)


def show(words: list[str]) -> list[str]:
    print("\n$ " + " ".join(word if "\n" in word else shlex.quote(word) for word in words), flush=True)
    return words


def ptweave(*words: str) -> None:
    command = show(["ptweave", *words])
    subprocess.run([sys.executable, "-m", "ptweave.cli", *command[1:]], check=True, cwd=PLACE)


def ask(question: str, sql: str) -> None:
    print(f"\n== {question}")
    text = " ".join(sql.split())
    print(f'$ ptweave query pigz.ptw "{text}"', flush=True)
    subprocess.run([sys.executable, "-m", "ptweave.cli", "query", "pigz.ptw", text], check=True, cwd=PLACE)


def sizes() -> None:
    from ptweave.data import Bundle

    bundle = Bundle.open(PLACE / "pigz.ptw")
    rows = [
        ("packets and engine logs", bundle.size(["trace"])),
        ("event lists of libtthread", bundle.size(["dependence"])),
        ("system calls, sideband", bundle.size(["events", "sideband.arrow", "run.json", "ledger.json"])),
        ("code images", bundle.size(["images"])),
        ("merged tables", bundle.size(["tables"])),
    ]
    print("\n== Size of the raw and of the merged record")
    for name, size in rows:
        print(f"{name:<28}{size / 1e6:>10.2f} MB")
    print("\n== Time of each step")
    for name, seconds in bundle.manifest.steps.items():
        print(f"{name.replace('_cpu', ', CPU time'):<28}{seconds:>10.2f} s")


def native_seconds() -> float:
    began = time.perf_counter()
    subprocess.run(["pigz", "-p", "4", "-k", "-c", "input.txt"], check=True, cwd=PLACE, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> int:
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    source = text_file(PLACE / "input.txt", INPUT_BYTES)
    print(f"input.txt: {source.stat().st_size} bytes of text")
    plain = native_seconds()
    ptweave("wrap", "-o", "pigz.ptw", "--", "pigz", "-p", "4", "-k", "input.txt")
    same = gzip.decompress((PLACE / "input.txt.gz").read_bytes()) == source.read_bytes()
    print(f"\npigz ran {plain:.2f} s natively; the recorded run's output decompresses to the input: "
          f"{'yes' if same else 'NO'}")
    for question, sql in QUESTIONS:
        ask(question, sql)
    sizes()
    print(f"\nThe record is {PLACE.relative_to(ROOT)}/pigz.ptw. Ask it yourself:  "
          f"{Path(sys.executable).parent.relative_to(ROOT) if Path(sys.executable).is_relative_to(ROOT) else ''}"
          "/ptweave query build/demo/pigz.ptw --list")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
