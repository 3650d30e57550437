# SPDX-License-Identifier: MIT
"""Probes as they are written down and packed, and what runtimes' hits are made into."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptweave.data.errors import BadInput
from ptweave.wrapper.elf_places import MarkerArgument, _arguments
from ptweave.wrapper.event_columns import DTYPES
from ptweave.wrapper.event_tables import Files
from ptweave.wrapper.filters import Kind
from ptweave.wrapper.uprobe_tables import ProbeTables, narrow
from ptweave.wrapper.uprobes import MOST, Probe, Source, Value, pack, parse

HITS = ("hotspot begin", "hotspot start", "hotspot stop", "hotspot end", "hotspot pool begin", "hotspot pool end",
        "python start", "python done")
TWO = (Value("a", Source.REGISTER), Value("b", Source.REGISTER))
PROBES = [Probe(Kind.GARBAGE_COLLECT, name, "/x", 0, TWO if "pool" in name else TWO[:1]) for name in HITS]


def rows(*hits: tuple[str, int, int, int]) -> np.ndarray:
    """Records of hits: (name, tid, first value, second value), a nanosecond apart."""
    found = np.zeros(len(hits), DTYPES[Kind.GARBAGE_COLLECT])
    for at, (name, tid, first, second) in enumerate(hits):
        found[at]["number"], found[at]["tid"], found[at]["pid"], found[at]["t"] = HITS.index(name), tid, 7, at
        found[at]["value"][:2] = first, second
    return found


@pytest.mark.property
@given(st.integers(0, (1 << 64) - 1), st.sampled_from([1, 2, 4, 8]), st.booleans())
def test_a_value_is_as_wide_and_as_signed_as_its_type(raw: int, size: int, signed: bool) -> None:
    low = raw.to_bytes(8, "little")[:size]
    expected = int.from_bytes(low, "little", signed=signed or size == 8)
    assert narrow(np.array([raw], np.uint64), Value("", Source.REGISTER, size=size, signed=signed))[0] == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("8@%r14 1@%dil -4@112(%rsp)", (MarkerArgument(8, False, "r14"), MarkerArgument(1, False, "di"),
                                    MarkerArgument(4, True, "sp", 112, memory=True))),
    ("-8@$-5 4@%eax 4@%r8d 1@%al", (MarkerArgument(8, True, "", -5), MarkerArgument(4, False, "ax"),
                                    MarkerArgument(4, False, "r8"), MarkerArgument(1, False, "ax"))),
    ("8@%rdi 8@table(%rip) 8@%rsi", (MarkerArgument(8, False, "di"),)), ("", ()),
])
def test_arguments_of_markers_are_read_up_to_one_that_is_not_known(
        text: str, expected: tuple[MarkerArgument, ...]) -> None:
    assert _arguments(text) == expected


def test_collections_in_a_pause_are_rows_and_the_pause_is_not() -> None:
    """As Parallel tells System.gc(): a young one and a full one in one pause, pools told inside each."""
    table = ProbeTables(PROBES).rows_of[Kind.GARBAGE_COLLECT](rows(
        ("hotspot begin", 1, 1, 0), ("hotspot start", 1, 15, 0), ("hotspot pool begin", 1, 100, 200),
        ("hotspot pool begin", 1, 11, 20), ("hotspot pool end", 1, 50, 200), ("hotspot pool end", 1, 1, 20),
        ("hotspot stop", 1, 0, 0), ("hotspot start", 1, 0, 0), ("hotspot stop", 1, 0, 0), ("hotspot end", 1, 0, 0),
    ), Files()).to_pylist()
    assert [(row["kind"], row["cause"], row["t"], row["duration"], row["used_before"], row["used_after"],
             row["committed"], row["gcs_completed"]) for row in table] == [
        ("collection", 15, 1, 5, 111, 51, 220, 1), ("collection", 0, 7, 1, None, None, None, 2)]


def test_pools_told_around_a_collection_are_its() -> None:
    """As Serial tells them; and another thread's python in between is another collection."""
    tables = ProbeTables(PROBES)
    begun = tables.rows_of[Kind.GARBAGE_COLLECT](rows(
        ("hotspot begin", 1, 0, 0), ("hotspot pool begin", 1, 90, 100), ("python start", 2, 2, 0),
        ("hotspot start", 1, 15, 0)), Files())
    assert begun.num_rows == 0 and tables.not_ended == 3
    ended = tables.rows_of[Kind.GARBAGE_COLLECT](rows(
        ("hotspot stop", 1, 0, 0), ("hotspot pool end", 1, 40, 100), ("python done", 2, 13, 0),
        ("hotspot end", 1, 0, 0)), Files()).to_pylist()
    names = ("runtime", "used_before", "used_after", "generation", "freed_objects", "full")
    assert [tuple(row[name] for name in names) for row in ended] == [
        ("cpython", None, None, 2, 13, True), ("hotspot", 90, 40, None, None, False)]
    assert tables.not_ended == 0


def test_a_pause_without_a_collection_and_a_cycle_beside_the_program_are_told_apart() -> None:
    table = ProbeTables(PROBES).rows_of[Kind.GARBAGE_COLLECT](rows(
        ("hotspot start", 3, 22, 0), ("hotspot begin", 1, 0, 0), ("hotspot end", 1, 0, 0), ("hotspot stop", 3, 0, 0),
        ("hotspot end", 4, 0, 0)), Files()).to_pylist()
    assert [(row["kind"], row["cause"], row["full"]) for row in table] == [("pause", None, False), ("cycle", 22, None)]


def test_more_probes_than_there_is_room_for_are_refused() -> None:
    assert len(pack(PROBES)) == len(pack([PROBES[0]] * MOST)) == MOST * (8 + 8 * 16)
    with pytest.raises(BadInput, match="more than 128"):
        pack([PROBES[0]] * (MOST + 1))


@pytest.mark.property
@given(st.text(max_size=40))
def test_any_text_is_a_probe_or_bad_input(text: str) -> None:
    with pytest.raises(BadInput):
        parse(text)
