# SPDX-License-Identifier: MIT
"""Accesses from event lists: the decoder against the tests' own reader, which expands everything by hand."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ptweave.data import Bundle, Clocks, Manifest
from ptweave.data.evl import Operation
from ptweave.data.schemas import DECODED_ACCESSES, DECODED_PAGES
from ptweave.decode.thunks import decode_thunks
from support.evl import List, header, record
from support.evl_accesses import read_accesses
from support.truth_check import Accesses, accesses_of

A, PAGE = 0x100_0000_0000, 4096
OP = Operation


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return Bundle.create(tmp_path / "x.ptw", Manifest(clocks=Clocks(0, 0, 1 << 40, 1 << 40)))


def sets_of(accesses: Accesses) -> tuple[set[tuple[int, int, int, bool]], dict[tuple[int, int, int], bytes]]:
    """Every thread, thunk and page it could access, for reading or writing; and bytes changed."""
    pages: set[tuple[int, int, int, bool]] = set()
    changed: dict[tuple[int, int, int], bytes] = {}
    for row in range(len(accesses)):
        for thunk in range(int(accesses.thunk[row]), int(accesses.until[row]) + 1):
            pages.add((int(accesses.thread[row]), thunk, int(accesses.page[row]), bool(accesses.write[row])))
            if accesses.bytes is not None and accesses.bytes[row].any():
                changed[int(accesses.thread[row]), thunk, int(accesses.page[row])] = accesses.bytes[row].tobytes()
    return pages, changed


def runs_of(choose: random.Random) -> list[tuple[int, int]]:
    """A few runs of bytes, ascending, apart from each other."""
    cuts = sorted(choose.sample(range(PAGE + 1), 2 * choose.randrange(1, 5)))
    return [(a, b - a) for a, b in zip(cuts[::2], cuts[1::2], strict=True)]


def commit(choose: random.Random, page: int) -> bytes:
    runs = runs_of(choose)
    count = sum(length for _, length in runs)
    if choose.random() < 0.5:
        flags = np.zeros(PAGE, np.uint8)
        for offset, length in runs:
            flags[offset:offset + length] = 1
        words = np.packbits(flags, bitorder="little").view("<u8")
        return record(OP.ACCESS_COMMIT, obj=page, version=1, argument=count, stack=tuple(int(one) for one in words))
    halves = [offset | length << 16 for offset, length in runs] + [0] * (len(runs) % 2)
    words_ = tuple(low | high << 32 for low, high in zip(halves[::2], halves[1::2], strict=True))
    return record(OP.ACCESS_COMMIT, obj=page, version=1, result=len(runs), argument=count, stack=words_)


def random_list(thread: int, choose: random.Random, length: int) -> List:
    """Accesses of a few pages among thunks: windows, upgrades, ends of some and of all, commits."""
    one = List(thread)
    one.add(OP.START, 0)
    for _ in range(length):
        address = A + choose.randrange(40) * PAGE + choose.randrange(PAGE)
        match choose.randrange(8):
            case 0:
                one.data += record(OP.ACCESS_END, obj=address // PAGE * PAGE, argument=choose.randrange(1, 60))
            case 1 if choose.random() < 0.3:
                one.data += record(OP.ACCESS_END)
            case 2 | 3:
                one.data += record(OP.MUTEX_LOCK, obj=1)
            case 4:
                one.data += commit(choose, address // PAGE * PAGE)
            case _:
                one.data += record(choose.choice((OP.ACCESS_READ, OP.ACCESS_WRITE)), obj=address,
                                   argument=choose.choice((1, 1, 2, 9)), stack=(address, 7))
    return one


@pytest.mark.parametrize("seed", range(30))
def test_the_decoder_and_the_other_reader_agree(bundle: Bundle, seed: int) -> None:
    choose = random.Random(seed)
    for thread in range(3):
        random_list(thread, choose, choose.choice((0, 5, 60, 700))).save(bundle.dependence)
    random_list(7, choose, 50).save(bundle.dependence)
    decode_thunks(bundle)
    records = pq.read_table(bundle.decoded / "accesses.parquet")
    pages = pq.read_table(bundle.decoded / "pages.parquet")
    assert records.schema.equals(DECODED_ACCESSES) and pages.schema.equals(DECODED_PAGES)
    bytes_of = {(row["thread"], row["record"]): row["bytes"]
                for row in records.select(["thread", "record", "bytes"]).to_pylist()}
    keys = zip(pages["thread"].to_pylist(), pages["record"].to_pylist(), strict=True)
    whole = pages.append_column("bytes", pa.array([bytes_of[key] for key in keys], records.schema.field("bytes").type))
    assert sets_of(accesses_of(whole)) == sets_of(read_accesses(bundle.dependence))
    for thread in (0, 1, 2, 7):
        here = records.filter(pc.equal(records["thread"], thread))
        assert here["record"].to_pylist() == list(range(len(here)))
    assert bundle.ledger().losses == [] and bundle.ledger()["accesses"].stored == len(records)


def test_more_than_a_batch_of_accesses_in_one_thunk(bundle: Bundle) -> None:
    one = List(0)
    one.add(OP.START, 0)
    count = 60_000
    one.data += b"".join(record(OP.ACCESS_WRITE, obj=A + n * PAGE, argument=1, stack=(n, 2)) for n in range(count))
    one.add(OP.EXIT, 9).save(bundle.dependence)
    assert decode_thunks(bundle) == 2
    pages = pq.read_table(bundle.decoded / "pages.parquet")
    assert sorted(pages["page"].to_pylist()) == [A + n * PAGE for n in range(count)]
    assert set(pages["until_thunk"].to_pylist()) == {1}
    assert pq.read_table(bundle.decoded / "accesses.parquet")["record"].to_pylist() == list(range(count))


def test_a_page_accessed_again_while_it_is_open_begins_a_new_row(bundle: Bundle) -> None:
    one = List(0).add(OP.START, 0)
    for _ in range(2):
        one.data += record(OP.ACCESS_READ, obj=A, argument=1)
        one.add(OP.MUTEX_LOCK, 1, obj=1)
    one.save(bundle.dependence)
    decode_thunks(bundle)
    rows = pq.read_table(bundle.decoded / "pages.parquet").to_pylist()
    assert [(row["record"], row["thunk"], row["until_thunk"]) for row in rows] == [(0, 0, 1), (1, 1, 2)]


def test_what_is_open_ends_with_the_program_that_opened_it(bundle: Bundle) -> None:
    """After an exec the same addresses are other memory."""
    one = List(0).add(OP.START, 0)
    one.data += record(OP.ACCESS_READ, obj=A, argument=1) + header(0, image=1)
    one.add(OP.START, 5).add(OP.MUTEX_LOCK, 6, obj=1).save(bundle.dependence)
    decode_thunks(bundle)
    row, = pq.read_table(bundle.decoded / "pages.parquet").to_pylist()
    assert (row["thunk"], row["until_thunk"]) == (0, 0)


@pytest.mark.parametrize("strange", [
    record(OP.ACCESS_READ, obj=A, argument=1025), record(OP.ACCESS_WRITE, obj=(1 << 64) - 1, argument=2),
    record(OP.ACCESS_COMMIT, obj=A, argument=1),
    record(OP.ACCESS_COMMIT, obj=A, result=1, argument=3, stack=(2 << 16,)),
    record(OP.ACCESS_COMMIT, obj=A, result=1, argument=2, stack=(4095 | 2 << 16,)),
    record(OP.ACCESS_COMMIT, obj=A + 1, result=1, argument=2, stack=(2 << 16,)),
    record(OP.ACCESS_COMMIT, obj=A, result=2, argument=4, stack=(2 << 16 | (2 | 2 << 16) << 32,)),
    record(OP.ACCESS_COMMIT, obj=A, result=-1, argument=2, stack=(2 << 16,)),
    record(OP.ACCESS_COMMIT, obj=A, result=1 << 40, argument=2, stack=(2 << 16,)),
], ids=range(9))
def test_a_record_that_contradicts_itself_is_counted(bundle: Bundle, strange: bytes) -> None:
    one = List(0).add(OP.START, 0)
    one.data += strange + record(OP.ACCESS_READ, obj=A, argument=1)
    one.save(bundle.dependence)
    decode_thunks(bundle)
    assert bundle.ledger()["thunks"].lost == {"corrupt": 1}
    assert len(pq.read_table(bundle.decoded / "pages.parquet")) == 1


def test_lists_without_accesses_leave_no_files(bundle: Bundle) -> None:
    one = List(0).add(OP.START, 0)
    one.data += record(OP.ACCESS_READ, obj=A, argument=1)
    one.save(bundle.dependence)
    decode_thunks(bundle)
    List(0).add(OP.START, 0).save(bundle.dependence)
    decode_thunks(bundle)
    assert not (bundle.decoded / "pages.parquet").exists() and not (bundle.decoded / "accesses.parquet").exists()
    assert "accesses" not in bundle.ledger()
