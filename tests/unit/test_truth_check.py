# SPDX-License-Identifier: MIT
"""The checker of recorded accesses, on accesses made by hand: it passes what is complete and finds what is missing."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from support.truth_check import (
    Accesses,
    Dependence,
    accesses_of,
    covered,
    dependences,
    missing_bytes,
    missing_dependences,
    missing_pages,
)
from support.truth_writer import TruthMaker, bits, held, perfect

A, B, C = 0x10000, 0x11000, 0x7FFF_FFFF_F000


def some_truth() -> TruthMaker:
    truth = TruthMaker()
    truth.add(0, 0, A, write=range(100)).add(0, 1, A, read=[5]).add(0, 4, B, read=[0], write=[4095])
    truth.add(1, 0, A, read=range(50), write=[60]).add(1, 7, C, write=[0]).add(0, 9, A, read=[60], write=[1])
    return truth


def accesses(*rows: tuple[int, int, int, int, bool]) -> Accesses:
    columns = list(zip(*rows, strict=True)) or [()] * 5
    return Accesses(*(np.array(column, kind) for column, kind in zip(
        columns, ("<i4", "<i8", "<i8", "<u8", "?"), strict=True)))


def test_a_perfect_recording_lacks_nothing() -> None:
    truth = some_truth().placed()
    for recording in (perfect(truth), held(truth)):
        assert missing_pages(truth, recording) == []
        assert missing_dependences(truth, dependences(truth), recording) == []
    assert missing_bytes(truth, perfect(truth)) == []


def test_every_row_that_is_dropped_is_missed() -> None:
    """The control: the recording has no row too many, so the checker must miss each one."""
    truth = TruthMaker().add(0, 0, A, write=[1]).add(0, 1, A, read=[1]).add(1, 1, A, read=[1]).add(
        1, 2, B, write=[7]).placed()
    whole = perfect(truth)
    for index in range(len(whole)):
        found = missing_pages(truth, whole.without(index))
        assert [(truth.thread[row], truth.first[row], truth.page[row]) for row in found] == [
            (whole.thread[index], whole.thunk[index], whole.page[index])]
        assert len(held(truth)) == len(whole) and missing_pages(truth, held(truth).without(index)) != []


def test_an_empty_recording_lacks_everything() -> None:
    truth = some_truth().placed()
    assert missing_pages(truth, accesses()) == list(range(len(truth)))


def test_a_read_does_not_cover_a_write_and_a_write_covers_a_read() -> None:
    truth = TruthMaker().add(0, 3, A, read=[1]).add(1, 3, A, write=[1]).placed()
    assert missing_pages(truth, accesses((0, 3, 3, A, False), (1, 3, 3, A, False))) == [1]
    assert missing_pages(truth, accesses((0, 3, 3, A, True), (1, 3, 3, A, True))) == []


def test_thread_thunk_and_page_must_all_be_right() -> None:
    truth = TruthMaker().add(2, 5, B, write=[1]).placed()
    for thread, thunk, until, page, complete in (
            (2, 5, 5, B, True), (2, 0, 9, B, True), (2, 5, 9, B, True), (2, 0, 5, B, True),
            (1, 5, 5, B, False), (3, 5, 5, B, False), (2, 6, 9, B, False), (2, 0, 4, B, False), (2, 5, 5, A, False)):
        assert (missing_pages(truth, accesses((thread, thunk, until, page, True))) == []) is complete


def test_a_row_that_began_earlier_and_reaches_further_is_found_behind_a_shorter_one() -> None:
    truth = TruthMaker().add(0, 8, A, write=[1]).placed()
    assert missing_pages(truth, accesses((0, 0, 9, A, True), (0, 3, 4, A, True))) == []
    assert missing_pages(truth, accesses((0, 0, 7, A, True), (0, 3, 4, A, True), (1, 0, 9, A, True))) == [0]


def test_a_true_row_that_spans_thunks_may_be_in_any_of_them() -> None:
    truth = TruthMaker().add(0, 3, A, write=[1]).placed()
    truth.last[0] = 5
    for thunk in range(8):
        assert (missing_pages(truth, accesses((0, thunk, thunk, A, True))) == []) is (3 <= thunk <= 5)


def test_a_threads_own_stack_needs_no_access_and_another_threads_does() -> None:
    truth = TruthMaker().add(0, 0, A, write=[1]).add(1, 0, A, read=[1]).placed()
    truth.own[0] = True
    true = dependences(truth)
    assert missing_pages(truth, accesses()) == [1] and missing_dependences(truth, true, accesses()) == true
    assert missing_pages(truth, accesses((1, 0, 0, A, False))) == []
    assert missing_dependences(truth, true, accesses((1, 0, 0, A, False))) == []


def test_coverage_agrees_with_a_plain_loop() -> None:
    """An independent oracle, on random rows."""
    source = np.random.default_rng(1)
    maker = TruthMaker()
    for _ in range(300):
        maker.add(int(source.integers(3)), int(source.integers(40)), A + 4096 * int(source.integers(6)), write=[0])
    truth = maker.placed()
    rows = [(int(source.integers(3)), start, start + int(source.integers(9)), A + 4096 * int(source.integers(6)),
             bool(source.integers(2))) for start in source.integers(0, 40, 120).tolist()]
    for writes in (False, True):
        plain = [any(thread == truth.thread[row] and page == truth.page[row] and thunk <= truth.last[row]
                     and until >= truth.first[row] and (write or not writes)
                     for thread, thunk, until, page, write in rows) for row in range(len(truth))]
        assert covered(truth, accesses(*rows), writes=writes).tolist() == plain
        assert 20 < sum(plain) < 280


def test_bytes_that_are_in_no_commit_are_counted() -> None:
    truth = TruthMaker().add(0, 1, A, write=range(10, 20)).add(0, 2, A, write=[5]).placed()
    recording = perfect(truth)
    assert recording.bytes is not None
    recording.bytes[0] = bits(range(12, 30))
    assert missing_bytes(truth, recording) == [(0, 2)]
    assert missing_bytes(truth, recording.without(0)) == [(0, 10)]
    assert missing_bytes(truth, recording.without(1)) == [(0, 2), (1, 1)]


def test_dependences_are_the_last_writes_of_other_threads() -> None:
    truth = TruthMaker()
    truth.add(0, 0, A, write=range(20))  # row 0
    truth.add(1, 0, A, read=range(10), write=range(10, 15))  # row 1
    truth.add(2, 0, A, read=range(5, 30))  # row 2
    truth.add(2, 1, A, write=[7])  # row 3
    truth.add(2, 2, A, read=[7])  # row 4: its own
    truth.add(0, 1, A, read=[7, 8, 12])  # row 5
    assert dependences(truth.placed()) == [
        Dependence(0, 1, 10), Dependence(0, 2, 10), Dependence(1, 2, 5), Dependence(1, 5, 1), Dependence(3, 5, 1)]


def test_a_dependence_without_its_write_or_its_read_is_missed() -> None:
    truth = TruthMaker().add(0, 0, A, write=[1]).add(1, 3, A, read=[1]).placed()
    true, whole = dependences(truth), perfect(truth)
    assert len(true) == 1 and missing_dependences(truth, true, whole) == []
    assert missing_dependences(truth, true, whole.without(0)) == true
    assert missing_dependences(truth, true, whole.without(1)) == true


def test_false_sharing_is_no_dependence() -> None:
    truth = TruthMaker().add(0, 0, A, write=[1]).add(1, 0, A, read=[2]).placed()
    assert dependences(truth) == []


def test_accesses_are_read_from_a_table() -> None:
    runs = pa.list_(pa.struct([("offset", pa.uint16()), ("length", pa.uint16())]))
    table = pa.table({
        "thread": pa.array([0, 1], pa.int32()), "thunk": pa.array([3, 4], pa.int32()),
        "until_thunk": pa.array([3, 9], pa.int32()), "page": pa.array([A, C], pa.uint64()),
        "write": pa.array([True, False]), "bytes": pa.array([[{"offset": 4090, "length": 6}], None], runs)})
    read = accesses_of(table)
    assert read.until.tolist() == [3, 9] and read.page.tolist() == [A, C] and read.write.tolist() == [True, False]
    assert read.bytes is not None and (read.bytes[0] == bits(range(4090, 4096))).all() and not read.bytes[1].any()
    assert accesses_of(table.drop_columns(["bytes"])).bytes is None
