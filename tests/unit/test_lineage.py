# SPDX-License-Identifier: MIT
"""Lineage over what no page tells: arguments and results of threads, and stacks that others look at."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from ptweave.data import layout
from ptweave.data.bundle import Bundle
from ptweave.data.syscall_table import NUMBERS
from ptweave.merge import Run, merge_run
from ptweave.merge.lineage import Direction, Lineage, node_of
from support.bundle_writer import BundleWriter

PTHREAD = layout.REGION + 2 * layout.STACK_AREA - 64
"""The second thread's: on its stack, which is the second one."""

ON_FIRST = layout.REGION + layout.STACK_AREA - 2 * layout.PAGE
"""A page of the first thread's stack."""

LOCK = 0x5000


def started(folder: Path) -> BundleWriter:
    """The first thread makes another at 1000, which takes a lock at 2000, and again at 3000; it takes it at 2500 and at
    3500; at 4000 it joins the other, which ended at 3800."""
    writer = BundleWriter(folder / "run.ptw")
    writer.task(0)
    writer.task(1, tid=101, creator=100, begin=1000)
    writer.thunk(0, t=0, operation="start", object_=0x9000)
    writer.thunk(0, t=1000, operation="create", object_=PTHREAD, acquire=False, release=True, clock=[2])
    writer.thunk(1, t=1010, operation="start", object_=PTHREAD, clock=[1, 1])
    writer.thunk(1, t=2000, operation="mutex_lock", object_=LOCK, clock=[1, 2])
    writer.thunk(1, t=2400, operation="mutex_unlock", object_=LOCK, acquire=False, release=True, clock=[1, 3])
    writer.thunk(0, t=2500, operation="mutex_lock", object_=LOCK, clock=[3, 2])
    writer.thunk(0, t=2900, operation="mutex_unlock", object_=LOCK, acquire=False, release=True, clock=[4, 2])
    writer.thunk(1, t=3000, operation="mutex_lock", object_=LOCK, clock=[3, 4])
    writer.thunk(1, t=3400, operation="mutex_unlock", object_=LOCK, acquire=False, release=True, clock=[3, 5])
    writer.thunk(0, t=3500, operation="mutex_lock", object_=LOCK, clock=[5, 4])
    writer.thunk(1, t=3800, operation="exit", object_=PTHREAD, acquire=False, release=True, clock=[3, 6])
    writer.thunk(0, t=4000, operation="join", object_=PTHREAD, clock=[6, 5])
    return writer


def moves(writer: BundleWriter, thread: int, name: str, descriptor: int, *, t: int, address: int = 0x7000,
          size: int = 1) -> None:
    writer.syscall(thread, None, enter=t, leave=t + 1, number=NUMBERS[name], result=size)
    assert writer.syscalls
    writer.syscalls[-1].update(name=name, args=[descriptor, address, size], paths=[])


def merged(writer: BundleWriter) -> Bundle:
    bundle = writer.write()
    merge_run(bundle)
    return bundle


def ends(bundle: Bundle, *, to: str | None = None, from_: str | None = None, memory: bool = False) -> set[str]:
    """Inputs and outputs that a node depended on, or reached."""
    with Run(bundle.path) as run:
        found = run.lineage(to=to, from_=from_, memory=memory)
        return {row["path"] for row in found.arrow().to_pylist() if row["what"] != "thunks"}


def test_a_thread_knows_its_argument_and_who_joins_it_its_result(tmp_path: Path) -> None:
    writer = started(tmp_path)
    moves(writer, 0, "read", 0, t=500)
    moves(writer, 1, "write", 2, t=1500)
    moves(writer, 0, "write", 1, t=4500)
    bundle = merged(writer)
    assert ends(bundle, from_="fd:0") == {"stdout", "stderr"}
    assert ends(bundle, to="fd:2") == {"stdin"}
    assert ends(bundle, from_="thunk:1.0") == {"stdout", "stderr"} and ends(bundle, from_="thunk:0.5") == {"stdout"}
    assert ends(bundle, from_="fd:0", memory=True) == set()  # that follows memory alone


def test_a_lock_alone_hands_nothing_over(tmp_path: Path) -> None:
    writer = started(tmp_path)
    moves(writer, 0, "read", 0, t=2600)
    moves(writer, 1, "write", 2, t=3100)
    assert ends(merged(writer), from_="fd:0") == set()


@pytest.mark.parametrize("until", [3, layout.PAGE])
def test_what_a_thread_may_have_put_on_its_stack_reaches_who_reads_there_later(tmp_path: Path, until: int) -> None:
    writer = started(tmp_path)
    moves(writer, 0, "read", 0, t=2600)  # its thunk 2: known to the other's 3
    writer.access(1, 1, ON_FIRST, write=False, until=until, t=2001)
    moves(writer, 1, "write", 2, t=2100)
    moves(writer, 1, "write", 1, t=3100)
    bundle = merged(writer)
    assert ends(bundle, from_="fd:0") == {"stdout"}
    assert ends(bundle, to="fd:1") == {"stdin"} and ends(bundle, to="fd:2") == set()


def test_what_is_written_on_a_stack_reaches_its_owner_when_it_knows_of_that(tmp_path: Path) -> None:
    writer = started(tmp_path)
    moves(writer, 0, "write", 1, t=2600)
    moves(writer, 1, "read", 0, t=3100)
    writer.access(1, 3, ON_FIRST, write=True, t=3101)
    moves(writer, 0, "write", 2, t=3600)
    bundle = merged(writer)
    assert ends(bundle, from_="fd:0") == {"stderr"}
    assert ends(bundle, to="fd:2") == {"stdin"} and ends(bundle, to="fd:1") == set()


def test_control_who_only_reads_there_tells_its_owner_nothing(tmp_path: Path) -> None:
    writer = started(tmp_path)
    moves(writer, 1, "read", 0, t=3100)
    writer.access(1, 3, ON_FIRST, write=False, t=3101)
    moves(writer, 0, "write", 2, t=3600)
    assert ends(merged(writer), from_="fd:0") == set()


@pytest.mark.parametrize("page", [ON_FIRST, layout.HEAP + 7 * layout.PAGE])  # large stacks come from the heap
def test_another_threads_writes_do_not_make_a_stacks_only_writers_known(tmp_path: Path, page: int) -> None:
    writer = started(tmp_path)
    writer.access(1, 1, page, write=True, t=2001)
    moves(writer, 0, "read", 0, t=2600)
    moves(writer, 0, "write", 1, t=3600, address=page, size=layout.PAGE)
    assert ends(merged(writer), from_="fd:0") == {"stdout"}


def test_control_of_a_page_it_had_to_open_writers_are_known(tmp_path: Path) -> None:
    writer = started(tmp_path)
    page = layout.HEAP + 7 * layout.PAGE
    writer.access(1, 1, page, write=True, t=2001)
    moves(writer, 0, "read", 0, t=2600)
    writer.access(0, 4, page, write=False, t=3600)
    moves(writer, 0, "write", 1, t=3601, address=page, size=layout.PAGE)
    assert ends(merged(writer), from_="fd:0") == set()


def test_messages_of_unknown_size_are_outputs(tmp_path: Path) -> None:
    writer = started(tmp_path)
    moves(writer, 0, "read", 0, t=2600)
    moves(writer, 0, "sendmmsg", 2, t=2700)
    bundle = merged(writer)
    assert ends(bundle, to="fd:2@1-2") == {"stdin"} and ends(bundle, from_="fd:0") == {"stderr"}


def test_a_file_whose_name_is_no_text_is_found_by_it(tmp_path: Path) -> None:
    writer = started(tmp_path)
    writer.syscall(0, None, enter=2510, leave=2511, number=NUMBERS["creat"], result=3)
    assert writer.syscalls
    writer.syscalls[-1].update(name="creat", args=[1, 0], paths=["\\x80\\xff"])  # as decoding has it
    moves(writer, 0, "read", 0, t=2600)
    moves(writer, 0, "write", 3, t=2700)
    bundle = merged(writer)
    assert ends(bundle, to="file:\udc80\udcff") == ends(bundle, to="file:\\x80\\xff") == {"stdin"}


PIPE = "pipe:[7]"


def processes(folder: Path, *, edge: bool = True) -> BundleWriter:
    """A process reads its input at 500 and begins another at 1000, as `edge` says or with nothing that does; that one
    executes a program, of which nothing is logged."""
    writer = BundleWriter(folder / "run.ptw")
    writer.task(0)
    writer.task(1, pid=200, tid=200, space=1, creator=100, begin=1000)
    writer.thunk(0, t=0, operation="start")
    writer.thunk(0, t=900, operation="fork" if edge else "mutex_unlock", object_=0, acquire=False, release=True,
                 clock=[2])
    writer.thunk(0, t=3000, operation="mutex_lock", clock=[3])
    writer.thunk(1, t=1010, operation="start", object_=0, clock=[2, 1] if edge else [0, 1])
    writer.thunk(1, t=1020, operation="start", clock=[2, 2] if edge else [0, 2])
    return writer


def piped(writer: BundleWriter, thread: int, name: str, *, t: int, size: int, pipe: str | None = PIPE) -> None:
    """A process moves so many bytes through its descriptor 7 or 8 of a pipe."""
    moves(writer, thread, name, 8 if name == "write" else 7, t=t, size=size)
    assert writer.syscalls
    writer.syscalls[-1].update(files=[pipe, None, None], pid=200 if thread else 100)


@pytest.mark.parametrize("edge", [True, False])
def test_a_process_knows_what_the_one_did_that_made_it(tmp_path: Path, edge: bool) -> None:
    """By vfork, too, of which nothing is logged. The control is what that one did later."""
    writer = processes(tmp_path, edge=edge)
    moves(writer, 0, "read", 0, t=500)
    moves(writer, 1, "write", 1, t=1500)
    bundle = merged(writer)
    assert ends(bundle, to="fd:1") == {"stdin"} and ends(bundle, from_="fd:0") == {"stdout"}
    assert ends(bundle, from_="thunk:0.2") == set()


@pytest.mark.parametrize(("put", "taken", "pipe", "reached"), [
    ((10, 10), (4, 4), PIPE, True), ((10, 10), (4, 4), None, False), ((10, 10), (4, 4), "pipe:[8]", False),
    ((4, 4), (10, 10), PIPE, True)])
def test_what_was_put_into_a_pipe_goes_to_who_takes_those_bytes(
        tmp_path: Path, put: tuple[int, int], taken: tuple[int, int], pipe: str | None, reached: bool) -> None:
    writer = processes(tmp_path, edge=False)
    writer.sideband = [{**row, "value": 1} for row in writer.sideband]  # another process made it
    moves(writer, 0, "read", 0, t=500)
    for at, size in zip((1100, 1200), put, strict=True):
        piped(writer, 0, "write", t=at, size=size)
    for at, size in zip((1150, 1250), taken, strict=True):
        piped(writer, 1, "read", t=at, size=size, pipe=pipe)
    moves(writer, 1, "write", 1, t=1500)
    bundle = merged(writer)
    assert ("stdin" in ends(bundle, to="fd:1"), "stdout" in ends(bundle, from_="fd:0")) == (reached, reached)


def test_bytes_of_a_pipe_that_were_put_in_later_are_not_those_taken(tmp_path: Path) -> None:
    """Two write to it, one before it reads its input and one after; only what the first wrote is taken."""
    writer = processes(tmp_path, edge=False)
    writer.sideband = [{**row, "value": 1} for row in writer.sideband]
    piped(writer, 0, "write", t=100, size=4)
    moves(writer, 0, "read", 0, t=3100)
    piped(writer, 0, "write", t=3200, size=4)
    piped(writer, 1, "read", t=3300, size=4)
    moves(writer, 1, "write", 1, t=3500)
    bundle = merged(writer)
    assert ends(bundle, to="fd:1") == {None} and ends(bundle, from_="fd:0") == {None}


BUFFERS = [layout.HEAP, layout.HEAP + layout.PAGE, ON_FIRST, ON_FIRST + layout.PAGE]


def random_run(folder: Path, seed: int) -> Bundle:
    """Two threads that take a lock in turns: in their thunks they write and read pages of the heap, and move bytes that
    lie there, or on a stack."""
    at = random.Random(seed)
    writer = started(folder)
    for thread, times in {0: (100, 1100, 2600, 3000, 3600, 4100), 1: (1100, 2100, 2500, 3100, 3500)}.items():
        for thunk, t in enumerate(times):
            for page in BUFFERS:
                if at.random() < 0.5:
                    writer.access(thread, thunk, page, write=at.random() < 0.5, until=thunk + at.randrange(2), t=t)
            for part in range(2):
                moves(writer, thread, *at.choice([("read", 0), ("write", 1)]), t=t + 20 + 20 * part,
                      address=at.choice([*BUFFERS[::2], 0x7000]) + at.randrange(layout.PAGE),
                      size=at.randrange(1, 2 * layout.PAGE))
    return merged(writer)


class Rows:
    """The tables of a run as dicts, to follow one by one."""

    def __init__(self, run: Run) -> None:
        self.edges = [row for row in self._of(run, "edges") if row["kind"] == "data"]
        self.accesses = [row for row in self._of(run, "accesses") if row["write"]]
        self.transfers = self._of(run, "transfers")

    @staticmethod
    def _of(run: Run, table: str) -> list[dict[str, Any]]:
        return run.sql(f"from {table}").arrow().to_pylist()

    def begins(self, moved: dict[str, Any], begin: int, end: int, *, back: bool) -> set[tuple[int, int]]:
        """Thunks that knew a transfer's bytes in memory, or were told them."""
        first = moved["address"] + max(begin - moved["offset"], 0)
        behind = moved["address"] + min(end - moved["offset"], moved["size"])
        pages = set(range(first // layout.PAGE * layout.PAGE, behind, layout.PAGE))
        near, far = ("to", "from") if back else ("from", "to")
        own = moved["thread"], moved["thunk"]
        met = [edge for edge in self.edges if edge["page"] in pages and edge[f"{near}_thread"] == own[0]
               and edge[f"{near}_thunk"] <= own[1] <= edge[f"{near}_until"]]
        others = {edge[f"{far}_thread"] for edge in met}
        if not back:
            return {(other, min(edge["to_thunk"] for edge in met if edge["to_thread"] == other))
                    for other in others} or {own}
        found = {(other, max(edge["from_until"] for edge in met if edge["from_thread"] == other)) for other in others}
        mine = [min(row["until_thunk"], own[1]) for row in self.accesses
                if row["page"] in pages and row["thread"] == own[0] and row["thunk"] <= own[1]]
        known = pages & {row["page"] for row in self.accesses if row["region"] != "stack"}
        return found | ({(own[0], max(mine))} if mine else set()) | (
            {own} if known != pages or not (found or mine) else set())

    def reached(self, begin: int, end: int, *, back: bool) -> set[tuple[int, int]]:
        """Thunks that are reached through memory alone."""
        near, far = ("to", "from") if back else ("from", "to")
        news = {one for row in self.transfers
                if row["input"] != back and row["offset"] < end and row["offset"] + row["size"] > begin
                for one in self.begins(row, begin, end, back=back)}
        found: set[tuple[int, int]] = set()
        while news:
            found |= news
            news = {(edge[f"{far}_thread"], thunk) for edge in self.edges for thread, at in news
                    if edge[f"{near}_thread"] == thread and edge[f"{near}_thunk"] <= at <= edge[f"{near}_until"]
                    for thunk in range(edge[f"{far}_thunk"], edge[f"{far}_until"] + 1)} - found
        return found


@pytest.mark.parametrize("seed", range(6))
def test_what_lineage_reaches_through_memory_is_what_following_rows_one_by_one_reaches(tmp_path: Path,
                                                                                       seed: int) -> None:
    bundle = random_run(tmp_path, seed)
    several = set()
    with Run(bundle.path) as run:
        rows = Rows(run)
        for begin, end in ((0, 1 << 62), (3000, 3001), (5000, 12_000), (20_000, 60_000)):
            for back in (False, True):
                wanted = rows.reached(begin, end, back=back)
                node = f"fd:{int(back)}@{begin}-{end}"
                found = run.lineage(to=node, memory=True) if back else run.lineage(from_=node, memory=True)
                assert wanted == {(row["thread"], thunk) for row in found.arrow().to_pylist() if row["what"] == "thunks"
                                  for thunk in range(row["first_thunk"], row["last_thunk"] + 1)}, (node, back)
                several.add(frozenset(wanted))
    assert len(several) > 2, "control: not always the same"


@pytest.mark.parametrize("back", [False, True])
def test_however_many_transfers_lead_there_as_many_questions_are_asked(tmp_path: Path, back: bool) -> None:
    asked = []
    for many in (1, 40):
        (tmp_path / str(many)).mkdir()
        writer = started(tmp_path / str(many))
        for number in range(many):
            moves(writer, 0, *(("write", 1) if back else ("read", 0)), t=2510 + 2 * number, address=BUFFERS[0])
        writer.access(0, 2, BUFFERS[0], write=True, t=2505)
        with Run(merged(writer).path) as run:
            questions: list[str] = []

            def ask(sql: str, *params: object, run: Run = run, told: list[str] = questions) -> list[tuple[Any, ...]]:
                told.append(sql)
                return run.ask(sql, *params).rows()

            direction, node = (Direction.TO, "fd:1") if back else (Direction.FROM, "fd:0")
            found = Lineage(ask, direction, memory=False).of(node_of(node))
            assert found.num_rows
            asked.append(len(questions))
    assert asked[0] == asked[1]
