# SPDX-License-Identifier: MIT
"""Placing system calls and thunks: exact where it is certain, never wrong, and the rest said so."""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput
from ptweave.data.schemas import CALL_STACKS, MAPS, STACKS, SYSCALLS, THUNKS
from ptweave.merge import merge_run
from support.bundle_writer import BASE, IMAGE_STRIDE, BundleWriter, rows_of

NS_A_BLOCK = 100


@dataclass
class Program:
    """main makes system calls at three places and locks at three, through a wrapper that runs the marker."""

    writer: BundleWriter
    syscalls: list[int] = field(default_factory=list)
    locks: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        block = self.writer.block
        self.plain = block("main", "jump")
        for _ in range(3):
            self.syscalls.append(block("main", "syscall"))
            block("main", "jump")
        for _ in range(3):
            self.locks.append(block("main", "call"))
            self.after.append(block("main", "jump"))
        self.wrapper = block("pthread_mutex_lock", "call", image=1)
        self.wrapper_end = block("pthread_mutex_lock", "return", image=1)
        self.marker = block("ptw_marker", "return", image=1)

    @property
    def marker_ip(self) -> int:
        return self.writer.blocks[self.marker].ip

    def returns_to(self, lock: int) -> int:
        return self.writer.blocks[self.locks[lock]].end

    def lock(self, number: int) -> list[int]:
        return [self.locks[number], self.wrapper, self.marker, self.wrapper_end, self.after[number]]


@dataclass
class Logged:
    """A whole run as it was: what ran, and where every call and thunk truly was."""

    blocks: list[int] = field(default_factory=list)
    calls: list[tuple[int, int]] = field(default_factory=list)  # (ordinal, site)
    thunks: list[tuple[int, int]] = field(default_factory=list)


def make_up(program: Program, draw: random.Random, length: int) -> Logged:
    logged = Logged()
    for _ in range(length):
        kind = draw.random()
        if kind < 0.3:
            logged.blocks += [program.plain] * draw.randint(1, 9)
        elif kind < 0.65:
            site = draw.randrange(3)
            logged.calls.append((len(logged.blocks), site))
            logged.blocks += [program.syscalls[site], program.plain]
        else:
            site = draw.randrange(3)
            logged.thunks.append((len(logged.blocks) + 2, site))
            logged.blocks += program.lock(site)
    return logged


def log(program: Program, logged: Logged, *, indexed: bool = True) -> None:
    """Write what the recorders log: every call and thunk, whether or not the flow has it."""
    writer = program.writer
    writer.syscalls, writer.thunks = [], []
    for index, (seq, site) in enumerate(logged.calls):
        t = (seq + 1) * NS_A_BLOCK
        writer.syscall(0, index if indexed else None, enter=t, leave=t + 10, number=site,
                       ip=writer.blocks[program.syscalls[site]].last_ip)
    for seq, site in logged.thunks:
        writer.thunk(0, t=(seq - 1) * NS_A_BLOCK, wait=NS_A_BLOCK // 2, marker=program.marker_ip,
                     stack=[program.returns_to(site), BASE + 0x1000])


def cut_out(program: Program, logged: Logged, holes: list[tuple[int, int]], every: int) -> dict[int, int]:
    """Run the flow without the holes; returns true ordinal → ordinal in the flow. A moment is known every so often."""
    writer, kept, place = program.writer, [], {}
    cuts = []
    for seq, block in enumerate(logged.blocks):
        if any(first <= seq < last for first, last in holes):
            if not cuts or cuts[-1] != len(kept):
                cuts.append(len(kept))
            continue
        place[seq] = len(kept)
        if seq % every == 0 or (kept and len(kept) == (cuts[-1] if cuts else -1)):
            writer.moment(0, len(kept), seq * NS_A_BLOCK)
        kept.append(block)
    writer.run(0, kept, cuts=cuts)
    for cut in cuts:
        writer.gap(0, cut)
    return place


def wrong_and_exact(bundle: Bundle, logged: Logged, place: dict[int, int]) -> tuple[int, int, int]:
    """Rows said to be exact that are not; exact ones; ones that could be."""
    wrong = exact = could = 0
    by_time = {row["t_enter"]: row for row in rows_of(bundle, SYSCALLS)}
    rows = [(seq, by_time[(seq + 1) * NS_A_BLOCK]) for seq, _ in logged.calls]
    thunks = sorted(rows_of(bundle, THUNKS), key=lambda row: row["thunk"])
    rows += [(seq, row) for (seq, _), row in zip(logged.thunks, thunks, strict=True)]
    for seq, row in rows:
        could += seq in place
        if row["placed"] == "exact":
            exact += 1
            wrong += row["seq"] != place.get(seq)
        assert (row["seq"] is None) == (row["placed"] == "none")
    return wrong, exact, could


@pytest.fixture
def program(tmp_path: Path) -> Program:
    made = Program(BundleWriter(tmp_path / "run.ptw"))
    made.writer.task(0)
    return made


def test_without_gaps_all_rows_are_exact(program: Program) -> None:
    logged = make_up(program, random.Random(1), 300)
    log(program, logged)
    place = cut_out(program, logged, [], 50)
    bundle = program.writer.write()
    merge_run(bundle)
    wrong, exact, could = wrong_and_exact(bundle, logged, place)
    assert (wrong, exact) == (0, could)
    ledger = bundle.ledger()
    assert ledger["placed/syscalls"].stored == len(logged.calls)
    assert ledger["placed/thunks"].stored == len(logged.thunks)
    assert ledger.losses == []


def test_no_clock_is_needed_without_gaps(program: Program) -> None:
    logged = make_up(program, random.Random(2), 60)
    log(program, logged)
    program.writer.run(0, logged.blocks)
    bundle = program.writer.write()
    merge_run(bundle)
    assert {row["placed"] for row in rows_of(bundle, SYSCALLS)} == {"exact"}


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32), hole=st.tuples(st.integers(0, 900), st.integers(1, 200)),
       every=st.sampled_from([7, 40, 400]), indexed=st.booleans())
def test_across_a_gap_nothing_is_placed_wrongly(seed: int, hole: tuple[int, int], every: int, indexed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = Program(BundleWriter(Path(folder) / "run.ptw"))
        program.writer.task(0)
        logged = make_up(program, random.Random(seed), 400)
        log(program, logged, indexed=indexed)
        place = cut_out(program, logged, [(hole[0], hole[0] + hole[1])], every)
        bundle = program.writer.write()
        merge_run(bundle)
        wrong, exact, could = wrong_and_exact(bundle, logged, place)
        assert wrong == 0
        # the kernel's calls have no number: a run of a few before the gap may fit in more than one place
        assert exact >= (0.99 if indexed else 0.9) * could
        for stream in ("placed/syscalls", "placed/thunks"):
            assert bundle.ledger()[stream].balanced


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 32), holes=st.lists(st.tuples(st.integers(0, 900), st.integers(1, 60)), max_size=12),
       every=st.sampled_from([20, 200, 100000]))
def test_across_many_gaps_nothing_is_placed_wrongly(seed: int, holes: list[tuple[int, int]], every: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = Program(BundleWriter(Path(folder) / "run.ptw"))
        program.writer.task(0)
        logged = make_up(program, random.Random(seed), 400)
        log(program, logged)
        place = cut_out(program, logged, [(first, first + length) for first, length in holes], every)
        bundle = program.writer.write()
        merge_run(bundle)
        wrong, _, _ = wrong_and_exact(bundle, logged, place)
        assert wrong == 0


def test_a_loop_that_cannot_be_told_apart_is_placed_by_time(program: Program) -> None:
    """The same call, over and over, and no clock: behind the gap no shift is better than another."""
    logged = Logged()
    for _ in range(100):
        logged.calls.append((len(logged.blocks), 0))
        logged.blocks += [program.syscalls[0], program.plain]
    log(program, logged)
    place = cut_out(program, logged, [(60, 80)], 100000)
    bundle = program.writer.write()
    merge_run(bundle)
    wrong, exact, _ = wrong_and_exact(bundle, logged, place)
    assert (wrong, exact) == (0, 30)
    assert "exact" not in {row["placed"] for row in rows_of(bundle, SYSCALLS) if row["t_enter"] > 61 * NS_A_BLOCK}


def test_swapped_logs_are_not_placed(program: Program) -> None:
    """The control: calls of another thread do not fit this flow."""
    logged = make_up(program, random.Random(3), 200)
    other = make_up(program, random.Random(4), 200)
    log(program, Logged(logged.blocks, other.calls, other.thunks))
    cut_out(program, logged, [], 50)
    bundle = program.writer.write()
    merge_run(bundle)
    assert "exact" not in {row["placed"] for row in rows_of(bundle, SYSCALLS)}
    assert "exact" not in {row["placed"] for row in rows_of(bundle, THUNKS)}


def test_a_call_the_log_lost_makes_nothing_wrong(program: Program) -> None:
    logged = make_up(program, random.Random(5), 300)
    log(program, logged)
    assert program.writer.syscalls
    del program.writer.syscalls[20]
    place = cut_out(program, logged, [], 50)
    bundle = program.writer.write()
    merge_run(bundle)
    placed = {seq: row for seq, _ in logged.calls for row in rows_of(bundle, SYSCALLS)
              if row["t_enter"] == (seq + 1) * NS_A_BLOCK}
    assert all(row["seq"] == place[seq] for seq, row in placed.items() if row["placed"] == "exact")


def test_one_thunk_may_be_missing_where_a_thread_was_killed(program: Program) -> None:
    logged = make_up(program, random.Random(6), 80)
    log(program, logged)
    program.writer.run(0, [*logged.blocks, *program.lock(1)[:3]])  # marked, killed before it was logged
    bundle = program.writer.write()
    merge_run(bundle)
    assert {row["placed"] for row in rows_of(bundle, THUNKS)} == {"exact"}


def test_thunks_follow_each_other_and_the_last_ends_with_the_flow(program: Program) -> None:
    logged = make_up(program, random.Random(7), 50)
    log(program, logged)
    cut_out(program, logged, [], 50)
    bundle = program.writer.write()
    merge_run(bundle)
    rows = rows_of(bundle, THUNKS)
    assert [row["seq_end"] for row in rows] == [*(row["seq"] for row in rows[1:]), len(logged.blocks)]


def test_stacks_get_the_names_of_the_functions_that_called(program: Program) -> None:
    logged = make_up(program, random.Random(8), 30)
    log(program, logged)
    assert program.writer.thunks
    program.writer.thunks[0]["stack"] = [program.returns_to(0), 0x10, BASE + 2 * IMAGE_STRIDE + 5]
    program.writer.thunks[2]["stack"], program.writer.thunks[3]["stack"] = [0x10, program.returns_to(0)], []
    cut_out(program, logged, [], 50)
    bundle = program.writer.write()
    merge_run(bundle)
    rows = rows_of(bundle, THUNKS)
    named = {row["stack"]: row["functions"] for row in rows_of(bundle, CALL_STACKS)}
    assert named[rows[0]["stack"]] == ["main", None, None]
    assert named[rows[1]["stack"]] == named[rows[4]["stack"]] == ["main", None]
    assert named[rows[2]["stack"]] == [None, "main"] and rows[3]["stack"] is None
    assert [row["caller"] for row in rows[:5]] == ["main", "main", None, None, "main"]
    assert [row["site"] for row in rows[:4]] == [program.returns_to(0), program.writer.thunks[1]["stack"][0], 0x10,
                                                 None]
    tree = {row["stack"]: row for row in rows_of(bundle, STACKS)}
    for stack, functions in named.items():  # the tree says the same, from the innermost frame on
        for function in functions:
            assert tree[stack]["function"] == function
            stack = tree[stack]["parent"]
        assert stack is None


def test_the_same_addresses_are_another_stack_in_another_program(tmp_path: Path) -> None:
    """An exec of the same thread maps another image there: each thunk's stack has the names of its own time."""
    program = Program(BundleWriter(tmp_path / "run.ptw"))
    writer = program.writer
    site = program.returns_to(0)
    writer.task(0)
    writer.run(0, [program.plain])
    for t in (5, 500):
        writer.thunk(0, t=t, stack=[site])
    writer.sideband.append({"kind": "process", "tsc": 100, "pid": 100, "space": 1, "detail": "exec", "path": "/bin/b"})
    bundle = writer.write()
    from support.bundle_writer import put
    maps = rows_of(bundle, MAPS)
    for row in maps:
        row["image"] = row["image"] if row["space"] == 0 else None
    put(bundle, MAPS, maps)
    merge_run(bundle)
    assert [row["caller"] for row in rows_of(bundle, THUNKS)] == ["main", None]
    assert [row["site"] for row in rows_of(bundle, THUNKS)] == [site, site]
    assert len({row["stack"] for row in rows_of(bundle, THUNKS)}) == 2


@pytest.mark.parametrize("damage", ["missing", "short", "other", "text"])
def test_stacks_that_are_not_there_are_said_in_one_line(program: Program, damage: str) -> None:
    for t in (1, 2, 3):
        program.writer.thunk(0, t=t, stack=[t])
    program.writer.run(0, [program.plain])
    bundle = program.writer.write()
    file = bundle.decoded / "stacks.parquet"
    rows = pq.read_table(file)
    if damage == "missing":
        file.unlink()
    elif damage == "text":
        file.write_text("no table")
    else:
        pq.write_table(rows.slice(1) if damage == "short" else rows.rename_columns(["others"]), file)
    with pytest.raises(BadInput) as error:
        merge_run(bundle)
    assert "stacks.parquet" in error.value.line() and "decode and merge the run again" in error.value.line()


def claim_rows(file: Path, rows: int) -> None:
    """Let a Parquet file of three rows claim others: num_rows is field 3 of FileMetaData, a zigzag varint."""
    raw = file.read_bytes()
    size = int.from_bytes(raw[-8:-4], "little")
    body, footer = raw[:-8 - size], raw[-8 - size:-8]
    before, _, behind = footer.partition(b"\x16\x06")
    value, varint = 2 * rows, bytearray()
    while value > 127:
        varint.append(value & 127 | 128)
        value >>= 7
    footer = before + b"\x16" + bytes([*varint, value]) + behind
    file.write_bytes(body + footer + len(footer).to_bytes(4, "little") + raw[-4:])
    assert pq.read_metadata(file).num_rows == rows


@pytest.mark.parametrize("claimed", [0, 2, 3, 4, 1 << 60])
def test_thunks_that_are_not_as_many_as_their_file_claims_are_said_in_one_line(program: Program, claimed: int) -> None:
    for t in (1, 2, 3):
        program.writer.thunk(0, t=t)
    program.writer.run(0, [program.plain])
    bundle = program.writer.write()
    claim_rows(bundle.decoded / "thunks.parquet", claimed)
    if claimed == 3:
        merge_run(bundle)
        return
    with pytest.raises(BadInput, match=rf"thunks\.parquet: is corrupt \(it claims {claimed} rows"):
        merge_run(bundle)


@pytest.mark.parametrize("few", [1 << 24, 0], ids=["few", "many"])
def test_calls_of_threads_without_flow_are_placed_nowhere(program: Program, few: int,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptweave.merge.in_order.FEW_BYTES", few)
    program.writer.run(0, [program.plain])
    program.writer.syscall(7, 0, enter=1, leave=2, ip=1)
    program.writer.syscall(None, None, enter=3, leave=4, ip=1)
    program.writer.thunk(7, t=5)
    bundle = program.writer.write()
    merge_run(bundle)
    assert [(row["thread"], row["seq"], row["placed"]) for row in rows_of(bundle, SYSCALLS)] == [
        (7, None, "none"), (None, None, "none")]
    assert [(row["seq"], row["placed"]) for row in rows_of(bundle, THUNKS)] == [(None, "none")]
    assert bundle.ledger()["placed/syscalls"].lost == {"none": 2}


def test_calls_only_the_kernel_saw_lie_between_the_program_s_by_time(program: Program) -> None:
    logged = make_up(program, random.Random(9), 60)
    log(program, logged)
    program.writer.syscall(0, None, enter=1234, leave=1240, number=99, ip=0x77)
    cut_out(program, logged, [], 10)
    bundle = program.writer.write()
    merge_run(bundle)
    odd = next(row for row in rows_of(bundle, SYSCALLS) if row["number"] == 99)
    assert odd["placed"] == "time"
    assert abs(odd["seq"] - 12) <= 10
    assert bundle.ledger()["placed/syscalls"].lost == {"time": 1}


def test_an_image_mapped_elsewhere_in_another_process_is_recognised(tmp_path: Path) -> None:
    """The block ran first in a process where its image lay elsewhere."""
    program = Program(BundleWriter(tmp_path / "run.ptw"))
    writer = program.writer
    writer.task(0)
    logged = make_up(program, random.Random(10), 40)
    log(program, logged)
    cut_out(program, logged, [], 50)
    assert writer.syscalls and writer.thunks
    bundle = writer.write()
    moved = 0x7000_0000
    import pyarrow as pa

    from ptweave.data.schemas import DECODED_SYSCALLS
    for rows in (writer.syscalls, writer.thunks):
        for row in rows:
            row["ip" if "ip" in row else "marker"] += moved  # type: ignore[operator]
            if "stack" in row:
                row["stack"] = [address + moved for address in row["stack"]]  # type: ignore[attr-defined]
    pq.write_table(pa.Table.from_pylist(writer.syscalls, DECODED_SYSCALLS), bundle.decoded / "syscalls.parquet")
    writer.write_thunks(bundle, writer.thunks)
    maps = rows_of(bundle, MAPS)
    for row in maps:
        row["start"], row["end"] = row["start"] + moved, row["end"] + moved  # type: ignore[operator]
    from support.bundle_writer import put
    put(bundle, MAPS, maps)
    merge_run(bundle)
    assert {row["placed"] for row in rows_of(bundle, SYSCALLS)} == {"exact"}
    assert {row["placed"] for row in rows_of(bundle, THUNKS)} == {"exact"}
    assert rows_of(bundle, THUNKS)[0]["caller"] == "main"


@pytest.mark.parametrize(("long", "each", "files"), [(False, 1 << 19, 1), (False, 10, 5), (True, 10, 1)],
                         ids=["few thunks", "many", "many with long clocks"])
def test_thunks_are_in_several_files_only_where_a_file_s_clocks_are_short(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, long: bool, each: int, files: int) -> None:
    """Else a thousand threads' thunks would be a thousand files."""
    made = BundleWriter(tmp_path / "run.ptw")
    made.task(0)
    for number in range(45):
        made.thunk(0, t=100 * number)
    bundle = made.write()
    monkeypatch.setattr("ptweave.merge.thunks._FILE_ROWS", each)
    if long:
        monkeypatch.setattr("ptweave.merge.thunk_rows._rows_with_clock", lambda metadata: 2)
    merge_run(bundle)
    found = sorted((bundle.tables / "thunks").iterdir(), key=lambda path: int(path.stem))
    assert [path.name for path in found] == [f"{number}.parquet" for number in range(files)]
    tables = [pq.read_table(path) for path in found]
    assert [time for table in tables for time in table["t"].to_pylist()] == [100 * number for number in range(45)]
    assert pq.ParquetFile(found[0]).metadata.num_row_groups == (3 if long else 1)
