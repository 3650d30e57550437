# SPDX-License-Identifier: MIT
"""Waits in system calls of a program that knows who waited for whom: its own clock and thread ids are the oracle."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from ptweave.merge import Run
from support.bpf import needs_bpf
from support.command import compile_c, ptweave
from support.engine import PROGRAMS

CALLS = {"pipe_thread": "read", "pipe_child": "read", "socketpair": "read", "poll": "poll", "select": "pselect6",
         "epoll": "epoll_wait", "eventfd": "read", "eventfd_poll": "poll", "end_of_file": "read", "flock": "flock",
         "fcntl": "fcntl", "waitpid": "wait4", "waitid": "waitid", "killed": "wait4", "sigwait": "rt_sigtimedwait",
         "futex": "futex"}
"""What the program waits for, and the system call it does that with."""

NOT_ASKED_OF_THE_KERNEL = {"native": set[str](), "process": {"sigwait"}}
"""What libtthread carries out in another way."""

pytestmark = needs_bpf


class Deed(NamedTuple):
    """Who waited (thread id), who ended that, and between which times, ns."""

    waiter: int
    who: int
    begin: int
    end: int


@pytest.mark.parametrize("threads", ["native", "process"])
def test_who_waited_for_whom_in_which_call(tmp_path: Path, threads: str) -> None:
    program = compile_c(PROGRAMS / "call_waits.c", tmp_path / "call_waits", "-g")
    bundle = tmp_path / "run.ptw"
    done = ptweave("wrap", "--threads", threads, "-o", bundle, "--", program, tmp_path / "lock")
    assert done.status == 0, done.err
    said = {name: Deed(*map(int, numbers)) for name, *numbers in map(str.split, done.out.decode().splitlines())}
    assert said.keys() == CALLS.keys()
    with Run(bundle) as run:
        tids = dict(run.sql("select thread, tid from threads").rows())
        calls = run.contention(calls=True).arrow().to_pylist()
        path = run.critical_path().arrow().to_pylist()
    for name in CALLS.keys() - NOT_ASKED_OF_THE_KERNEL[threads]:
        deed = said[name]
        found = min((row for row in calls if row["released"] is not None and row["operation"] == CALLS[name]
                     and deed.begin <= row["released"] <= deed.end and tids[row["thread"]] == deed.waiter),
                    key=lambda row: row["released"])
        assert tids[found["by_thread"]] == deed.who, name
        # all of the time before the deed, but for the fork or create, was the other one's on the path
        assert sum(max(min(row["t_end"], deed.begin) - row["t_begin"], 0) for row in path
                   if tids[row["thread"]] == deed.who and row["what"] == "run") > 90_000_000, name
    assert sum(row["ns"] for row in path) == path[-1]["t_end"] - path[0]["t_begin"]
    assert all(one["t_end"] == following["t_begin"] for one, following in pairwise(path))


def test_a_pipeline_depends_on_what_is_read_at_its_begin(tmp_path: Path) -> None:
    """What a later command reads and writes is the control."""
    (tmp_path / "in").write_text("one\ntwo\n")
    (tmp_path / "other").write_text("three\n")
    (tmp_path / "script").write_text("cat in | tr a-z A-Z | sort -r > out\ncat other > last\n")
    done = ptweave("wrap", "-o", tmp_path / "run.ptw", "--", "sh", "script", cwd=tmp_path)
    assert done.status == 0 and (tmp_path / "out").read_text() == "TWO\nONE\n", done.err
    with Run(tmp_path / "run.ptw") as run:
        def ends(**node: str) -> set[str]:
            return {row["path"] for row in run.lineage(**node).arrow().to_pylist()
                    if row["path"] in ("in", "other", "script", "out", "last")}

        assert ends(to="file:out") == {"in", "script"} and ends(to="file:last") == {"other", "script"}
        assert ends(from_="file:in") == {"out"} and ends(from_="file:other") == {"last"}
