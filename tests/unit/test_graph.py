# SPDX-License-Identifier: MIT
"""Edges and races of made-up schedules: exactly what follows from the definition."""

from __future__ import annotations

import random
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput
from ptweave.data.schemas import EDGES, RACES
from ptweave.merge import merge_run
from support.bundle_writer import BASE, BundleWriter, rows_of
from support.happens_before import (
    LAST_BYTE,
    Schedule,
    Span,
    Thunk,
    clock,
    data_edges,
    make_up,
    maximal,
    races,
    sync_edges,
)

pytestmark = pytest.mark.usefixtures("few_or_many")

PAGES = [0x10000, 0x11000, 0x12000]
SITES = [BASE + 0x10, BASE + 0x20]


def write(schedule: Schedule, folder: Path, *, private: bool = False) -> Bundle:
    """A schedule's logs, merged."""
    bundle = write_logs(schedule, folder, private=private).write()
    merge_run(bundle)
    return bundle


def write_logs(schedule: Schedule, folder: Path, *, private: bool) -> BundleWriter:
    """A schedule's logs."""
    folder.mkdir(exist_ok=True)
    writer = BundleWriter(folder / "run.ptw")
    writer.manifest.view = "private" if private else "shared"
    pasts = schedule.pasts()
    for thread, operations in enumerate(schedule.operations):
        writer.task(thread, tid=100 + thread)
        for thunk, operation in enumerate(operations):
            writer.thunk(thread, t=1000 * thunk, clock=clock(schedule, pasts, (thread, thunk)), object_=0x77,
                         acquire=operation == "acquire", release=operation == "release")
    for span in schedule.spans:
        runs = None if span.bytes is None else [(a, b - a) for a, b in span.bytes]
        writer.access(span.thread, span.first, span.page, write=span.write, until=span.until, site=span.site,
                      address=span.address, bytes_=runs, window=span.window, t=1000 * span.first)
    return writer


def of_kind(bundle: Bundle, kind: str) -> list[dict[str, int]]:
    return [row for row in rows_of(bundle, EDGES) if row["kind"] == kind]  # type: ignore[misc]


def ends(row: dict[str, int]) -> tuple[Thunk, Thunk]:
    return (row["from_thread"], row["from_thunk"]), (row["to_thread"], row["to_thunk"])


def stored_races(bundle: Bundle) -> dict[tuple[object, ...], int]:
    found: dict[tuple[object, ...], int] = defaultdict(int)
    for row in rows_of(bundle, RACES):
        one = (row["thread"], row["ip"], row["write"], row["address"])
        other = tuple(row[f"other_{name}"] for name in ("thread", "ip", "write", "address"))
        found[row["page"], one, other] += row["pairs"]  # type: ignore[operator]
    return dict(found)


def put_accesses(schedule: Schedule, draw: random.Random, *, held: bool, bytes_: bool = False) -> None:
    """Accesses in some thunks. In the private view a write is an open page and a commit of bytes."""
    for thread, operations in enumerate(schedule.operations):
        for thunk in range(len(operations)):
            for page in PAGES:
                if draw.random() < 0.6:
                    continue
                wrote = draw.random() < 0.5
                until = thunk + draw.choice([0, 1, 3, 1 << 30]) if held else thunk
                span = Span(thread, thunk, until, page, wrote, draw.choice(SITES), page + 8 * draw.randrange(3),
                            window=int(not bytes_ and draw.random() < 0.1))
                if wrote and draw.random() < 0.3:  # read first, then written
                    schedule.spans.append(replace(span, write=False, site=draw.choice(SITES), window=0))
                schedule.spans.append(replace(span, address=span.page - 4096 if span.window else span.address))
                if wrote and bytes_:
                    start = draw.randrange(0, 40)
                    runs = ((start, start + 5), (start + 9, start + 10 + draw.randrange(4)))
                    schedule.spans.append(replace(span, bytes=runs))


SEEDS = st.integers(0, 1 << 32)
SHAPES = st.tuples(st.integers(1, 5), st.integers(0, 40), st.integers(1, 3))


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, shape=SHAPES)
def test_edges_and_races_of_exact_accesses_are_those_of_the_definition(seed: int, shape: tuple[int, int, int]) -> None:
    draw = random.Random(seed)
    schedule = make_up(draw, *shape)
    put_accesses(schedule, draw, held=False)
    pasts = schedule.pasts()
    with tempfile.TemporaryDirectory() as folder:
        bundle = write(schedule, Path(folder))
        assert {ends(row) for row in of_kind(bundle, "sync")} == sync_edges(schedule, pasts)
        assert sorted(ends(row) for row in of_kind(bundle, "control")) == sorted(
            ((thread, thunk - 1), (thread, thunk)) for thread, operations in enumerate(schedule.operations)
            for thunk in range(1, len(operations)))
        found = [(*ends(row), row["page"]) for row in of_kind(bundle, "data")]
        assert len(found) == len(set(found)) and set(found) == set(data_edges(schedule, pasts))
        assert all(row["from_until"] == row["from_thunk"] and row["to_until"] == row["to_thunk"]
                   for row in rows_of(bundle, EDGES))
        assert stored_races(bundle) == races(schedule, pasts)


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, shape=SHAPES)
def test_edges_of_the_private_view_are_those_of_every_byte(seed: int, shape: tuple[int, int, int]) -> None:
    draw = random.Random(seed)
    schedule = make_up(draw, *shape)
    put_accesses(schedule, draw, held=False, bytes_=True)
    schedule_of_bytes = replace_writes(schedule)
    pasts = schedule.pasts()
    with tempfile.TemporaryDirectory() as folder:
        bundle = write(schedule, Path(folder), private=True)
        found = {(*ends(row), row["page"]): {byte for run in row["bytes"]
                                             for byte in range(run["offset"], run["offset"] + run["length"])}
                 for row in of_kind(bundle, "data")}
        assert found == data_edges(schedule_of_bytes, pasts)


def replace_writes(schedule: Schedule) -> Schedule:
    """As the definition has it: who opened a page for writing may have read it, and wrote what was committed."""
    other = Schedule(schedule.threads, steps=schedule.steps)
    other.operations = schedule.operations
    other.spans = [span if span.bytes else replace(span, write=False) for span in schedule.spans]
    return other


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, shape=SHAPES)
def test_edges_of_held_accesses_cover_every_thunk_and_no_order_is_made_up(seed: int,
                                                                          shape: tuple[int, int, int]) -> None:
    draw = random.Random(seed)
    schedule = make_up(draw, *shape)
    put_accesses(schedule, draw, held=True)
    pasts = schedule.pasts()
    with tempfile.TemporaryDirectory() as folder:
        rows = of_kind(write(schedule, Path(folder)), "data")
    open_, written = spread(schedule)
    for row in rows:
        (writer, first), (reader, thunk) = ends(row)
        assert (writer, first) in pasts[reader, thunk] and (writer, row["from_until"]) in pasts[reader, row["to_until"]]
        assert all((writer, one, row["page"]) in written for one in range(first, row["from_until"] + 1))
        assert all((reader, one, row["page"]) in open_ for one in range(thunk, row["to_until"] + 1))
    for thread, thunk, page in open_:
        seen = {(i, k) for i, k, other in written if other == page and (i, k) in pasts[thread, thunk]}
        for writer in maximal(seen, pasts):
            held = writer[0] == thread and (thread, thunk - 1, page) in open_
            assert held or any(
                row["page"] == page and row["from_thread"] == writer[0] and row["to_thread"] == thread
                and row["from_thunk"] <= writer[1] <= row["from_until"] and row["to_thunk"] <= thunk <= row["to_until"]
                for row in rows), (writer, thread, thunk, page)


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, shape=SHAPES)
def test_edges_of_held_pages_in_the_private_view_cover_every_byte(seed: int, shape: tuple[int, int, int]) -> None:
    draw = random.Random(seed)
    schedule = make_up(draw, *shape)
    put_accesses(schedule, draw, held=True, bytes_=True)
    pasts = schedule.pasts()
    with tempfile.TemporaryDirectory() as folder:
        rows = of_kind(write(schedule, Path(folder), private=True), "data")
    commits = [span for span in schedule.spans if span.bytes]
    covered = {(row["page"], row["from_thread"], row["from_thunk"], row["to_thread"], thunk, byte) for row in rows
               for thunk in range(row["to_thunk"], row["to_until"] + 1) for run in row["bytes"]
               for byte in range(run["offset"], run["offset"] + run["length"])}
    open_, _ = spread(replace_writes(schedule))
    for thread, thunk, page in open_:
        known = [one for one in commits if one.page == page and (one.thread, one.first) in pasts[thread, thunk]]
        for byte in range(LAST_BYTE):
            last = maximal({(one.thread, one.first) for one in known
                            if any(a <= byte < b for a, b in one.bytes or ())}, pasts)
            for writer in last:
                held = writer[0] == thread and (thread, thunk - 1, page) in open_
                assert held or (page, *writer, thread, thunk, byte) in covered
    for page, writer_thread, writer_thunk, thread, thunk, _ in covered:
        assert (writer_thread, writer_thunk) in pasts[thread, thunk] and (thread, thunk, page) in open_


def spread(schedule: Schedule) -> tuple[set[tuple[int, int, int]], set[tuple[int, int, int]]]:
    """Every (thread, thunk, page) in which the page was open, and in which it was for writing."""
    open_, written = set(), set()
    for span in (one for one in schedule.spans if one.bytes is None):
        mine = {(span.thread, thunk, span.page) for thunk in range(span.first, schedule.end(span) + 1)}
        open_ |= mine
        written |= mine if span.write else set()
    return open_, written


def two_threads() -> Schedule:
    """Thread 0 writes, releases; thread 1 acquires, reads; then writes something else, as thread 0 does."""
    schedule = Schedule(2)
    schedule.begin(0, "release", 0)
    schedule.begin(1, "acquire", 0)
    page = PAGES[0]
    schedule.spans = [Span(0, 0, 0, page, True, SITES[0], page), Span(1, 1, 1, page, False, SITES[1], page),
                      Span(0, 1, 1, PAGES[1], True, SITES[0], PAGES[1]),
                      Span(1, 1, 1, PAGES[1], True, SITES[1], PAGES[1] + 4)]
    return schedule


def test_a_hand_over_and_a_race(tmp_path: Path) -> None:
    bundle = write(two_threads(), tmp_path)
    assert [(*ends(row), row["page"]) for row in of_kind(bundle, "data")] == [((0, 0), (1, 1), PAGES[0])]
    assert [(*ends(row), row["object"]) for row in of_kind(bundle, "sync")] == [((0, 0), (1, 1), 0x77)]
    (race,) = rows_of(bundle, RACES)
    assert (race["overlap"], race["page"], race["pairs"]) == ("address", PAGES[1], 1)
    assert ((race["thread"], race["thunk"], race["other_thread"], race["other_thunk"]) == (0, 1, 1, 1))


def test_control_the_two_threads_logs_swapped_give_other_edges(tmp_path: Path) -> None:
    schedule = two_threads()
    right = {ends(row) for row in of_kind(write(schedule, tmp_path / "a"), "data")}
    schedule.spans = [replace(span, thread=1 - span.thread) for span in schedule.spans]
    assert {ends(row) for row in of_kind(write(schedule, tmp_path / "b"), "data")} != right


def test_bytes_that_do_not_overlap_are_no_race_and_ones_that_do_are(tmp_path: Path) -> None:
    for name, start, expected in (("apart", 8, []), ("overlapping", 7, ["bytes"])):
        schedule = Schedule(2)
        for thread, bytes_ in ((0, (0, 8)), (1, (start, 12))):
            span = Span(thread, 0, 0, PAGES[0], True, SITES[thread], PAGES[0])
            schedule.spans += [span, replace(span, bytes=(bytes_,))]
        bundle = write(schedule, tmp_path / name, private=True)
        assert [row["overlap"] for row in rows_of(bundle, RACES)] == expected


def test_a_place_that_wrote_a_passed_through_page_and_then_a_private_one_races_only_where_bytes_meet(
        tmp_path: Path) -> None:
    schedule = Schedule(2)
    for thread in (0, 1):
        schedule.begin(thread, "release", thread)
    writer = write_logs(schedule, tmp_path, private=True)
    for thread, bytes_ in ((0, (0, 8)), (1, (8, 4))):  # the bytes of the second thunks do not meet
        place = {"write": True, "site": SITES[thread], "address": PAGES[0] + 96 + 8 * thread}
        writer.access(thread, 0, PAGES[0], **place, shared=True)
        writer.access(thread, 1, PAGES[0], **place, bytes_=[bytes_])
    bundle = writer.write()
    merge_run(bundle)
    assert [(row["overlap"], row["pairs"]) for row in rows_of(bundle, RACES)] == [("page", 3)]


def test_memory_of_two_programs_is_not_one(tmp_path: Path) -> None:
    schedule = two_threads()
    writer = BundleWriter(tmp_path / "run.ptw")
    pasts = schedule.pasts()
    for thread, operations in enumerate(schedule.operations):
        writer.task(thread, pid=100 + thread, space=thread)
        for thunk in range(len(operations)):
            writer.thunk(thread, t=1000 * thunk, clock=clock(schedule, pasts, (thread, thunk)))
    for span in schedule.spans:
        writer.access(span.thread, span.first, span.page, write=span.write, t=1000)
    bundle = writer.write()
    merge_run(bundle)
    assert of_kind(bundle, "data") == [] and rows_of(bundle, RACES) == []


@pytest.mark.parametrize("column", ["thunk", "thread", "until_thunk"])
def test_accesses_of_no_thunk_are_counted_and_the_others_answered(column: str, tmp_path: Path) -> None:
    schedule = two_threads()
    schedule.spans.append(Span(0, 0, 0, PAGES[2], True, SITES[0], PAGES[2]))
    writer = write_logs(schedule, tmp_path, private=False)
    writer.pages[-1][column] = 7 if column == "thunk" else -5
    if column == "thread":
        writer.accesses[-1]["thread"] = -5
    bundle = writer.write()
    merge_run(bundle)
    assert [ends(row) for row in of_kind(bundle, "data")] == [((0, 0), (1, 1))]
    assert bundle.ledger()["edges/pages"].lost == {"of no thunk": 1}


def test_thunks_with_a_hole_in_their_numbers_are_refused(tmp_path: Path) -> None:
    writer = BundleWriter(tmp_path / "run.ptw")
    writer.thunk(0, t=1)
    assert writer.thunks
    writer.thunks[0]["thunk"] = 1
    bundle = writer.write()
    with pytest.raises(BadInput, match="do not follow"):
        merge_run(bundle)
