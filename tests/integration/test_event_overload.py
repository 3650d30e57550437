# SPDX-License-Identifier: MIT
"""More events than the recorder carries: each is stored or counted as lost, by kind and by call.

The oracle is the program, which counts its calls itself; the tables are counted by reading them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ptweave.data.ledger import Stream
from ptweave.merge import Run
from support.bpf import needs_bpf
from support.command import ptweave
from support.programs import compile_program

pytestmark = [pytest.mark.root, needs_bpf]

CALLS = ("getppid", "read", "write")
FASTEST = 1_000_000_000


def paced(folder: Path, rate: int, *options: str) -> tuple[int, Run]:
    """Rounds of three calls that the program made, and the recording of it."""
    program = compile_program(folder, "paced_calls")
    done = ptweave("events", "-q", *options, "-o", folder / "run.ptw", "--", program, rate, 1)
    assert done.status == 0, done.err
    run = Run(folder / "run.ptw")
    assert run.ledger.check() == []
    return int(done.out.split()[0]), run


def stored_of(run: Run, table: str, name: str, column: str = "name") -> int:
    """Rows of the loop's calls; those of the loader and of stdout have other arguments."""
    loop = "" if name == "getppid" else "and files[1] in ('/dev/zero', '/dev/null')" if table == "syscalls" else ""
    return int(run.sql(f"select count(*) from {table} where {column} = '{name}' {loop}").rows()[0][0])


def lost_of(stream: Stream, why: str) -> int:
    return int(stream.lost.get(why, 0))


def missing(rounds: int, run: Run) -> dict[str, int]:
    """By call: how many of the program's are neither stored nor lost. Below 0: of the loader's some were lost, too."""
    stream = run.ledger["syscalls/kernel"]
    return {name: rounds - stored_of(run, "syscalls", name) - lost_of(stream, f"ring_full/{name}") for name in CALLS}


def test_at_overload_each_call_and_event_is_stored_or_counted_as_lost(tmp_path: Path) -> None:
    rounds, run = paced(tmp_path, FASTEST, "--ring", "65536", "--kinds", "syscall,write,blocking")
    with run:
        calls, writes, blocking = (run.ledger[name] for name in ("syscalls/kernel", "events/write", "events/blocking"))
        for stream in (calls, writes, blocking):
            assert stream.total_lost > 1000, "it was no overload"
            assert stream.produced == stream.stored + stream.total_lost
        assert {why.partition("/")[0] for why in calls.lost} == {"ring_full"}
        assert set(writes.lost) == set(blocking.lost) == {"ring_full"}
        assert missing(rounds, run)["getppid"] == 0  # the loader makes none
        assert all(-20 <= count <= 0 for count in missing(rounds, run).values())
        assert calls.stored == run.sql("select count(*) from syscalls").rows()[0][0]
        assert writes.stored == run.sql("select count(*) from writes").rows()[0][0]
        assert blocking.stored == run.sql("select count(*) from blocking").rows()[0][0]
        assert writes.produced == rounds + 1  # and what it prints
        assert blocking.produced == calls.produced - 1  # exit_group does not return


def test_a_count_that_is_one_off_is_seen(tmp_path: Path) -> None:
    """The control: with nothing lost the same count comes out at 0, and of one round more at 1."""
    rounds, run = paced(tmp_path, 30_000)
    with run:
        assert run.ledger.losses == []
        assert missing(rounds, run) == dict.fromkeys(CALLS, 0)
        assert missing(rounds + 1, run) == dict.fromkeys(CALLS, 1)
