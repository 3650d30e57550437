# SPDX-License-Identifier: MIT
"""Columns that share the C half's memory, and times that are exact."""

from __future__ import annotations

import gc

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ptweave.data.manifest import Clocks
from ptweave.data.schemas import BlockClass
from ptweave.decode._ipt import ffi, lib
from ptweave.decode.columns import array, coded, times
from ptweave.decode.flow import CLASSES, EVENTS
from ptweave.decode.gaps import FOUND, WORDS, GapKind, Reason

TSC = st.integers(0, (1 << 56) - 1)


def test_an_array_keeps_its_owner_alive_and_shares_its_memory() -> None:
    freed = []
    owner = ffi.gc(ffi.new("int32_t[3]", [5, 6, 7]), lambda _: freed.append(1))
    made = array(owner, owner, 3, pa.int32())
    owner[1] = 60
    del owner
    gc.collect()
    assert freed == []
    assert made.to_pylist() == [5, 60, 7]
    del made
    gc.collect()
    assert freed == [1]


def test_a_bitmap_makes_nulls() -> None:
    owner = ffi.new("uint64_t[3]", [5, 6, 7])
    valid = ffi.new("uint8_t[1]", [0b101])
    assert array(owner, owner, 3, pa.uint64(), valid).to_pylist() == [5, None, 7]


def test_no_rows_make_an_empty_array() -> None:
    assert array(None, ffi.NULL, 0, pa.int8()).to_pylist() == []


def test_codes_become_words() -> None:
    assert coded(pa.array([1, 0], pa.int8()), ("a", "b")).to_pylist() == ["b", "a"]


@given(tsc=st.lists(TSC, min_size=1), tsc0=TSC, span=st.integers(-5, 1 << 50), t0=st.integers(0, 1 << 60),
       ns=st.integers(0, 1 << 50))
def test_times_are_those_of_the_manifest(tsc: list[int], tsc0: int, span: int, t0: int, ns: int) -> None:
    clocks = Clocks(tsc0, t0, tsc0 + span, t0 + ns)
    expected = [clocks.to_ns(one) for one in tsc]
    limit = 1 << 63
    if all(-limit <= one < limit for one in expected):
        assert times(pa.array(tsc, pa.uint64()), clocks).tolist() == expected


def test_enumerations_are_those_of_the_c_half() -> None:
    names = {name[len("PTD_"):].lower(): getattr(lib, name) for name in dir(lib) if name.startswith("PTD_")}
    assert tuple(BlockClass) == CLASSES
    assert {name: names[name] for name in CLASSES} == {name: code for code, name in enumerate(CLASSES)}
    assert {name: names[f"ev_{name}"] for name in EVENTS} == {name: code for code, name in enumerate(EVENTS)}
    assert {kind: names[f"gap_{kind}"] for kind in FOUND} == {kind: code for code, kind in enumerate(FOUND)}
    assert {reason: names[f"why_{reason.name.lower()}"] for reason in Reason} == {reason: reason for reason in Reason}
    assert set(WORDS) == set(Reason)
    assert set(FOUND) < set(GapKind)


def test_libipts_errors_have_words() -> None:
    assert b"memory mapped" in ffi.string(lib.ptd_error_text(13))
    assert ffi.string(lib.ptd_error_text(12345))
