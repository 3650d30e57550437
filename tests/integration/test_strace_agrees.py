# SPDX-License-Identifier: MIT
"""The system calls of a run are those that strace sees, call by call; every difference has its reason here.

strace runs the program natively with the same library preloaded and a control server to shake hands with, so that both
make the same calls but for what the engine's machine differs in.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections import Counter
from pathlib import Path

import pytest

from ptweave.data import Ledger
from ptweave.merge import Run
from ptweave.wrapper.control import ControlServer
from support.command import ptweave
from support.control import Threads, new_bundle

COMMAND = ["ls", "-lR", "/usr/share/doc"]

# name → (calls more under the engine, why); a difference that is not listed fails the test
EXPLAINED: dict[str, tuple[int, str]] = {
    "execve": (-1, "strace sees its own child become the program; the record begins behind that exec"),
    "exit_group": (1, "strace -c counts calls when they return, and this one does not"),
    "clock_gettime": (1, "natively the vDSO answers it without a system call; the engine has no vDSO"),
}


def served_strace(folder: Path) -> Counter[str]:
    """Counts by name from `strace -f -c`, with libtthread preloaded and served."""
    bundle = new_bundle(folder, "served.ptw")
    server = ControlServer(bundle, Threads())
    over = threading.Event()

    def serve() -> None:
        while not over.wait(0.01):
            server.service()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        extra = server.environment()
        summary = folder / "summary"
        subprocess.run(["strace", "-f", "-c", "-U", "name,calls", "-o", summary,
                        *(word for name, value in extra.items() for word in ("-E", f"{name}={value}")), *COMMAND],
                       check=True, capture_output=True)
    finally:
        over.set()
        thread.join()
        server.finish(Ledger())
    counts: Counter[str] = Counter()
    for line in summary.read_text().splitlines():
        found = re.fullmatch(r"\s*([a-z]\w*)\s+(\d+)\s*", line)
        if found and found.group(1) not in ("total", "calls"):
            counts[found.group(1)] += int(found.group(2))
    return counts


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("strace")
    done = ptweave("wrap", "-q", "-o", folder / "run.ptw", "--", *COMMAND)
    assert done.status == 0, done.err
    return Run(folder / "run.ptw")


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_the_count_of_calls_is_that_of_strace(run: Run, tmp_path: Path) -> None:
    expected = served_strace(tmp_path)
    seen = Counter(dict(run.sql("select name, count(*) from syscalls group by name").rows()))
    differences = {name: seen[name] - expected[name] for name in seen | expected if seen[name] != expected[name]}
    assert differences == {name: more for name, (more, _) in EXPLAINED.items()}
    assert seen.total() > 1000


@pytest.mark.skipif(os.geteuid() != 0, reason="eBPF needs root")
def test_every_call_has_its_place_in_the_flow_and_paths_were_seen(run: Run) -> None:
    assert run.sql("select distinct placed from syscalls").rows() == [("exact",)]
    listed = {row[0] for row in run.sql("select unnest(paths) from syscalls where name = 'openat'").rows()}
    assert "/usr/share/doc" in listed
