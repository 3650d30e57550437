# SPDX-License-Identifier: MIT
"""The system calls of a run are those that strace sees, call by call; every difference has its reason here.

strace runs the program natively with the same library preloaded, so that both make the same calls but for what the
engine's machine differs in; what libtthread does by itself is not in the table. How often the loader takes memory for
itself depends on the lengths of paths, which are not the same: that is counted on both sides.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from ptweave.merge import Run
from support.command import ptweave
from support.strace import ANONYMOUS, LOADER_ENDS, counted, loader_blocks

COMMAND = ["ls", "-lR", "/usr/share/doc"]

# name → (calls more under the engine, why); a difference that is not listed fails the test
EXPLAINED: dict[str, tuple[int, str]] = {
    "execve": (-1, "strace sees its own child become the program; the record begins behind that exec"),
    "exit_group": (1, "strace -c counts calls when they return, and this one does not"),
    "rt_sigprocmask": (-2, "libtthread says with one where it begins to work for itself, and with one where it ends"),
    "clock_gettime": (1, "natively the vDSO answers it without a system call; the engine has no vDSO"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("strace")
    done = ptweave("wrap", "-q", "-o", folder / "run.ptw", "--", *COMMAND)
    assert done.status == 0, done.err
    return Run(folder / "run.ptw")


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_the_count_of_calls_is_that_of_strace(run: Run, tmp_path: Path) -> None:
    expected = counted(COMMAND, tmp_path)
    seen = Counter(dict(run.sql("select name, count(*) from syscalls group by name").rows()))
    (blocks,), = run.sql("select count(*) from syscalls where name = 'mmap' and args[1] = 0 and args[4] = ? "
                         "and t_enter < (select min(t_enter) from syscalls where name = ?)", ANONYMOUS, LOADER_ENDS)
    expected["mmap"] += blocks - loader_blocks(COMMAND, tmp_path)
    differences = {name: seen[name] - expected[name] for name in seen | expected if seen[name] != expected[name]}
    assert differences == {name: more for name, (more, _) in EXPLAINED.items()}
    assert seen.total() > 1000


@pytest.mark.skipif(os.geteuid() != 0, reason="eBPF needs root")
def test_every_call_has_its_place_in_the_flow_and_paths_were_seen(run: Run) -> None:
    assert run.sql("select distinct placed from syscalls").rows() == [("exact",)]
    listed = {row[0] for row in run.sql("select unnest(paths) from syscalls where name = 'openat'").rows()}
    assert "/usr/share/doc" in listed
