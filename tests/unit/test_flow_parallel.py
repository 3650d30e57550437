# SPDX-License-Identifier: MIT
"""Whatever is decoded when and by whom: the same tables, ids included; and nothing that was finished is done twice."""

from __future__ import annotations

import multiprocessing
import random
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput
from ptweave.data.manifest import Clocks
from ptweave.data.sideband import SidebandKind
from ptweave.decode import flow, task
from ptweave.decode.assemble import Assembler, Part, write_part
from ptweave.decode.flow import Decoder, decode_flow
from ptweave.decode.task import PIECE, TASK_KINDS, Decoding, Task, TaskWriter
from ptweave.decode.workers import Here
from support.assembler import assemble
from support.pt_writer import PtWriter
from support.random_program import Machine, random_run
from support.trace_bundle import CLOCKS, Decoded, TraceBundle

NAMES = ("images", "maps", "blocks", "paths", "flow", "clock", "pt_events", "gaps")


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> list[Machine]:
    return [random_run(seed, tmp_path_factory.mktemp("machine"), steps=4000) for seed in (2003, 2004)]


def build(path: Path, machines: list[Machine]) -> TraceBundle:
    """Two threads in two address spaces, with something lost, and a third without a trace."""
    bundle = TraceBundle(path)
    for number, machine in enumerate(machines):
        bundle.map(machine.code.data, machine.code.base, name=f"code{number}", space=number)
        bundle.thread(machine.packets.data, number=number, slices=((0, number, 0),))
    bundle.row(SidebandKind.LOST, thread=1, offset=machines[1].psbs[1], size=100, detail="the ring was full")
    return bundle.row(SidebandKind.THREAD, thread=5, tid=9)


def contents(bundle: Bundle) -> dict[str, pa.Table]:
    decoded = Decoded(bundle)
    tables = {name: decoded.table(name) for name in NAMES}
    tables["threads"] = pa.table({"rows": [str(decoded.thread(number)) for number in (0, 1, 5)]})
    tables["ledger"] = pa.table({"rows": [str(decoded.bundle.ledger().to_json())]})
    return tables


class Shuffled(Here):
    """Does tasks in an order that chance decides, each with a decoder of its own."""

    room = 7
    chance = random.Random(0)

    def __init__(self, bundle: Bundle, decoder: Decoder, code: object) -> None:
        self._bundle = bundle
        self._make = lambda: Decoding(bundle, decoder)
        self._asked: list[tuple[Future[None], Task, Path]] = []

    def decode(self, task: Task, file: Path, moved: Callable[[int], None]) -> Future[None]:
        future: Future[None] = Future()
        self._asked.append((future, task, file))
        return future

    def wait(self, futures: set[Future[None]]) -> set[Future[None]]:
        done = {future for future in futures if future.done()}
        for _ in range(self.chance.randrange(1, 4)):
            if self._asked:
                future, task, file = self._asked.pop(self.chance.randrange(len(self._asked)))
                self._make().run(task, file)
                future.set_result(None)
                done.add(future)
        return done


# --- the same whatever the order -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_random_cuts_give_the_same_tables_in_any_order(
        tmp_path: Path, machines: list[Machine], seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    sizes = {"size": chance.choice((1, 50, 300, 1000, 5000)), "part_rows": chance.choice((1, 100, 1 << 20))}
    bundle = build(tmp_path / "run.ptw", machines).write()
    decode_flow(bundle, size=1 << 40)
    whole = Decoded(bundle)
    sequences = [[ip for part in whole.addresses(number) for ip in part] for number in (0, 1)]
    assert sequences[0] == machines[0].executed
    decode_flow(bundle, **sizes)
    Decoded(bundle).check()
    once = contents(bundle)
    assert [[ip for part in Decoded(bundle).addresses(number) for ip in part] for number in (0, 1)] == sequences
    monkeypatch.setattr(flow, "Here", Shuffled)
    monkeypatch.setattr(Shuffled, "chance", chance)
    decode_flow(bundle, **sizes)
    assert contents(bundle) == once


@pytest.mark.parametrize("jobs", [2, 3])
def test_processes_give_the_same_tables(tmp_path: Path, machines: list[Machine], jobs: int) -> None:
    bundle = build(tmp_path / "run.ptw", machines).write()
    decode_flow(bundle, size=1500, part_rows=200)
    once = contents(bundle)
    seen: list[tuple[int, int]] = []
    report = decode_flow(bundle, lambda done, total: seen.append((done, total)), jobs=jobs, size=1500,
                         part_rows=200)
    assert contents(bundle) == once
    assert report.tasks > 4
    assert seen == sorted(seen)
    assert seen[-1] == (report.trace_bytes, report.trace_bytes)
    assert not (bundle.decoded / "tasks").exists()


def test_a_decode_leaves_no_process_or_thread_behind(tmp_path: Path, machines: list[Machine]) -> None:
    """One that lives on for a moment holds the bundle's lock: the next decode or merge would be refused."""
    bundle = Bundle.open(build(tmp_path / "run.ptw", machines).write().path)
    threads = threading.active_count()
    decode_flow(bundle, jobs=2, size=9000)
    alive = [process.pid for process in multiprocessing.active_children()], threading.active_count()
    assert alive == ([], threads)


def test_control_other_cuts_give_other_rows(tmp_path: Path, machines: list[Machine]) -> None:
    """What is held equal above can differ: ids and rows are another matter than instructions."""
    bundle = build(tmp_path / "run.ptw", machines).write()
    decode_flow(bundle, size=1 << 40)
    once = contents(bundle)
    trace = bundle.trace / "0.pt"
    data = bytearray(trace.read_bytes())
    at = data.index(0x02, 200)
    trace.write_bytes(data[:machines[0].psbs[2]])
    decode_flow(bundle, size=1)
    assert at
    assert contents(bundle) != once


def test_tables_in_many_files_are_read_in_order(tmp_path: Path, machines: list[Machine]) -> None:
    bundle = build(tmp_path / "run.ptw", machines).write()
    decode_flow(bundle)
    one = Decoded(bundle)
    expected = [one.hash(number) for number in (0, 1)]
    assert len(list((bundle.tables / "flow").iterdir())) == 1
    decode_flow(bundle, size=1, part_rows=1)
    many = Decoded(bundle)
    assert len(list((bundle.tables / "flow").iterdir())) > 11  # 10 comes after 9, not after 1
    assert [many.hash(number) for number in (0, 1)] == expected
    seqs = many.table("flow").filter(pa.compute.equal(many.table("flow")["thread"], 0))["seq"].to_pylist()
    assert seqs == sorted(seqs)
    decode_flow(bundle)
    assert [path.name for path in (bundle.tables / "flow").iterdir()] == ["0.parquet"]


def test_time_is_carried_from_range_to_range(tmp_path: Path) -> None:
    """A PSB+ without a TSC: what comes after it has the time known before."""
    code = assemble("a: nop\nsyscall\nb: nop\nsyscall", tmp_path)
    packets = PtWriter().psb_plus(tsc=1300).mode_exec().pge(code["a"]).pgd(code["b"])
    packets.psb_plus().mode_exec().pge(code["b"]).pgd()
    bundle = TraceBundle(tmp_path / "run.ptw").map(code.data, code.base).thread(packets.data)
    written = bundle.write()
    rows = []
    for size in (1, 1 << 40):
        decode_flow(written, size=size)
        decoded = Decoded(written)
        rows.append(([(row["tsc"], row["kind"], row["detail"]) for row in decoded.rows("pt_events")], decoded.clock()))
    assert rows[0] == rows[1]
    assert {tsc for tsc, _, _ in rows[0][0]} == {1300}


def test_tracing_that_resumes_in_the_next_range_is_known_to(tmp_path: Path) -> None:
    code = assemble("a: nop\nsyscall\nb: nop\nsyscall", tmp_path)
    packets = PtWriter().psb_plus(tsc=1).mode_exec().pge(code["a"]).pgd(code["b"])
    packets.psb_plus(tsc=2).psb_plus(tsc=3).mode_exec().pge(code["b"]).pgd(code["a"])
    packets.psb_plus(tsc=4).mode_exec().pge(code["b"]).pgd()
    written = TraceBundle(tmp_path / "run.ptw").map(code.data, code.base).thread(packets.data).write()
    details = []
    for size in (1, 1 << 40):
        decode_flow(written, size=size)
        details.append([row["detail"] for row in Decoded(written).rows("pt_events") if row["kind"] == "enabled"])
    assert details == [[None, 1, None]] * 2


# --- going on where a decode ended -----------------------------------------------------------------------------------


class Stopped(Exception):
    """In place of a SIGKILL."""


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """Tasks that were decoded."""
    done: list[Task] = []
    run = Decoding.run

    def counting(self: Decoding, task: Task, file: Path, moved: Callable[[int], None] = lambda done: None) -> None:
        run(self, task, file, moved)
        done.append(task)

    monkeypatch.setattr(Decoding, "run", counting)
    return done


def stop_after(bundle: Bundle, tasks: int, counted: list[Task], **options: int) -> None:
    def progress(done: int, total: int) -> None:
        if len(counted) >= tasks:
            raise Stopped

    with pytest.raises(Stopped):
        decode_flow(bundle, progress, **options)


def test_finished_tasks_are_not_decoded_again(tmp_path: Path, machines: list[Machine], counted: list[Task]) -> None:
    bundle = build(tmp_path / "run.ptw", machines).write()
    report = decode_flow(bundle, size=1)
    once = contents(bundle)
    counted.clear()
    stop_after(bundle, 5, counted, size=1)
    assert contents(bundle) == once, "until a decode is done, the tables are those of the one before"
    finished = len(counted)
    again = decode_flow(bundle, size=1)
    assert again.found == finished
    assert len(counted) == report.tasks
    assert contents(bundle) == once


@pytest.mark.parametrize("change", ["trace", "sideband", "image", "image is gone", "cuts", "processor", "format",
                                    "decoder", "damage", "empty", "link"])
def test_what_was_made_from_something_else_is_not_used(
        tmp_path: Path, machines: list[Machine], counted: list[Task], change: str,
        monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = build(tmp_path / "run.ptw", machines).write()
    stop_after(bundle, 3, counted, size=1)
    files = sorted((bundle.decoded / "tasks").glob("*.arrow"))
    assert len(files) == len(counted) >= 3
    size = 1
    if change == "trace":
        trace = bundle.trace / "0.pt"
        data = bytearray(trace.read_bytes())
        data[-1] ^= 1
        trace.write_bytes(data)
    elif change == "sideband":
        table = pa.ipc.open_file(bundle.sideband).read_all()
        with pa.ipc.new_file(bundle.sideband, table.schema) as writer:
            writer.write_table(table.slice(0, len(table) - 1))
    elif change.startswith("image"):
        (bundle.images / "code0").write_bytes(machines[0].code.data + b"\x90")
        if change == "image is gone":
            (bundle.images / "code0").unlink()
    elif change == "cuts":
        size = 2000
    elif change == "processor":
        bundle.manifest.cpu.family = 6
    elif change == "format":
        monkeypatch.setattr(task, "FORMAT", task.FORMAT + 1)
    elif change == "decoder":
        changed = task._functions
        monkeypatch.setattr(task, "_functions", lambda decoder: type(changed(decoder))(
            **{**vars(changed(decoder)), "version": 99}))
    else:
        for file in files:
            data = file.read_bytes()
            file.unlink()
            if change == "link":
                (tmp_path / "elsewhere").write_bytes(data)
                file.symlink_to(tmp_path / "elsewhere")
            else:
                file.write_bytes(data[:len(data) // 2] if change == "damage" else b"")
    assert decode_flow(bundle, size=size).found == 0
    Decoded(bundle).check()


def test_a_damaged_result_is_an_error_or_harmless(tmp_path: Path, machines: list[Machine], counted: list[Task]) -> None:
    """Files a machine from elsewhere may bring: whatever is in them, nothing is read beyond what is there."""
    bundle = build(tmp_path / "run.ptw", machines).write()
    stop_after(bundle, 3, counted, size=1)
    kept = tmp_path / "kept"
    shutil.copytree(bundle.decoded / "tasks", kept)
    chance = random.Random(1)
    for _ in range(40):
        shutil.rmtree(bundle.decoded / "tasks", ignore_errors=True)
        shutil.copytree(kept, bundle.decoded / "tasks")
        for file in (bundle.decoded / "tasks").glob("*.arrow"):
            data = bytearray(file.read_bytes())
            for _ in range(chance.randrange(1, 6)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            file.write_bytes(data)
        try:
            decode_flow(bundle, size=1)
        except (BadInput, pa.ArrowException):
            continue


def test_two_decodes_at_a_time_are_refused(tmp_path: Path, machines: list[Machine]) -> None:
    bundle = build(tmp_path / "run.ptw", machines).write()
    errors: list[str] = []

    def progress(done: int, total: int) -> None:
        if not errors:
            with pytest.raises(BadInput) as caught:
                decode_flow(bundle)
            errors.append(str(caught.value))

    decode_flow(bundle, progress)
    assert "being decoded" in errors[0]


def test_the_path_decoder_is_refused_or_there(tmp_path: Path, machines: list[Machine]) -> None:
    bundle = build(tmp_path / "run.ptw", machines).write()
    assert decode_flow(bundle, decoder=Decoder.LIBIPT).decoder is Decoder.LIBIPT


# --- pieces ----------------------------------------------------------------------------------------------------------


def write_task(file: Path, paths: list[tuple[list[tuple[int, int]], ...]], pieces: list[dict[str, int]],
               flow_ids: list[int], clock: list[tuple[int, int]]) -> None:
    """A task's file by hand: `paths` are lists of (ip, instructions), each block new to the task when it comes."""
    blocks: list[tuple[int, int]] = []
    starts, numbers = [0], []
    for (path,) in paths:
        for block in path:
            if block not in blocks:
                blocks.append(block)
            numbers.append(blocks.index(block))
        starts.append(len(numbers))
    lengths = [b - a for a, b in pairwise(starts)]
    ips = pa.array([ip for ip, _ in blocks], pa.uint64())
    writer = TaskWriter(file)
    half = len(flow_ids) // 2  # two steps, so that pieces lie across them
    writer.write({"flow": pa.array(flow_ids[:half], pa.int32()),
                  "clock_seq": pa.array([seq for seq, _ in clock], pa.int64()),
                  "clock_tsc": pa.array([tsc for _, tsc in clock], pa.uint64()),
                  "clock_before": pa.array([0] * len(clock), pa.int32())})
    writer.write({"flow": pa.array(flow_ids[half:], pa.int32())})
    seq = sum(lengths[path] for path in flow_ids)
    total = sum(sum(count for _, count in paths[path][0]) for path in flow_ids)
    rows = {"flow": len(flow_ids), "clock": len(clock), "event": 0, "gap": 0}
    columns = {f"piece_{name}": pa.array([piece.get(name, 0) for piece in pieces]) for name in PIECE}
    zeros = [0] * len(blocks)
    writer.write({
        "block_image": pa.array(zeros), "block_offset": pa.array([ip for ip, _ in blocks]), "block_ip": ips,
        "block_last_ip": ips, "block_size": pa.array([4] * len(blocks)),
        "block_instructions": pa.array([count for _, count in blocks]), "block_last": pa.array([1] * len(blocks)),
        "block_mode": pa.array([3] * len(blocks)), "leg_starts": pa.array(starts), "leg_blocks": pa.array(numbers),
        "path_starts": pa.array(range(len(starts))), "path_legs": pa.array(range(len(starts) - 1)),
        "path_length": pa.array(lengths), **columns,
        "end": pa.array([seq, max([0, *(tsc for _, tsc in clock)]), total, seq, *(rows[kind] for kind in TASK_KINDS),
                         0, 0])})
    writer.close()


A, B, C = (0x1000, 3), (0x2000, 4), (0x3000, 5)


def parts_of(assembler: Assembler, files: list[tuple[str, Path]]) -> list[Part]:
    parts = [part for trace, file in files for part in assembler.take(trace, file, first=True)]
    return parts + list(assembler.finish())


@pytest.mark.parametrize("part_rows", [1, 1000])
def test_pieces_of_two_processors_are_put_together_by_thread_and_time(tmp_path: Path, part_rows: int) -> None:
    """Threads 0 and 1 run on two processors in turn; a task nobody asked for runs between them."""
    one, two = tmp_path / "cpu-0.arrow", tmp_path / "cpu-1.arrow"
    write_task(one, [([A],), ([A, B],)], [
        {"thread": 0, "tsc": 100},
        {"thread": 1, "tsc": 200, "flow": 2, "clock": 1, "seq": 3, "instructions": 10, "branches": 3},
        {"thread": 0, "tsc": 300, "flow": 3, "clock": 1, "seq": 4, "instructions": 13, "branches": 4},
    ], flow_ids=[0, 1, 0, 1], clock=[(1, 110), (5, 310)])
    write_task(two, [([B],), ([C],)], [
        {"thread": 1, "tsc": 100},
        {"thread": -1, "tsc": 150, "flow": 1, "clock": 1, "seq": 1, "instructions": 4, "branches": 1},
        {"thread": 0, "tsc": 200, "flow": 2, "clock": 1, "seq": 2, "instructions": 9, "branches": 2},
        {"thread": 1, "tsc": 300, "flow": 3, "clock": 2, "seq": 3, "instructions": 13, "branches": 3},
    ], flow_ids=[0, 1, 0, 1], clock=[(0, 105), (2, 205)])
    assembler = Assembler(interleaved=True, part_rows=part_rows)
    parts = parts_of(assembler, [("cpu-0", one), ("cpu-1", two)])
    assert len(parts) == (6 if part_rows == 1 else 1)
    for part in parts:
        write_part(part, tmp_path / "tables", Clocks(0, 0, 1, 1))
    flow_rows, clock_rows = (
        pa.concat_tables([pa.parquet.read_table(tmp_path / "tables" / name / f"{part.number}.parquet")
                          for part in parts]).to_pylist() for name in ("flow", "clock"))
    (path_table,) = assembler.paths(1000)
    ips = assembler.blocks()["ip"].to_pylist()
    ran = {row["path"]: [ips[block] for block in row["blocks"]] for row in path_table.to_pylist()}
    found = [(row["thread"], row["seq"], [hex(ip) for ip in ran[row["path"]]]) for row in flow_rows]
    a, b, c = "0x1000", "0x2000", "0x3000"
    assert found == [
        (0, 0, [a]), (0, 1, [a, b]), (0, 3, [b]), (0, 4, [a, b]),
        (1, 0, [b]), (1, 1, [a]), (1, 2, [c])]
    assert [(row["thread"], row["seq"], row["tsc"]) for row in clock_rows] == [
        (0, 1, 110), (0, 3, 205), (0, 5, 310), (1, 0, 105)]
    totals = assembler.threads
    assert {number: (one.seq, one.instructions, one.branches) for number, one in totals.items()} == {
        0: (6, 10 + 4 + 7, 6), 1: (3, 4 + 3 + 5, 3)}
    first = {number: ips[one.first_block] for number, one in totals.items() if one.first_block is not None}
    assert first == {0: 0x1000, 1: 0x2000}


def test_control_pieces_in_another_order_are_other_rows(tmp_path: Path) -> None:
    files = [tmp_path / f"cpu-{cpu}.arrow" for cpu in (0, 1)]
    for times in ((100, 200), (200, 100)):
        for file, path, time in zip(files, (A, B), times, strict=True):
            write_task(file, [([path],)], [{"thread": 0, "tsc": time}], flow_ids=[0], clock=[])
        (part,) = parts_of(Assembler(interleaved=True), [(file.stem, file) for file in files])
        assert [piece.file for piece in part.pieces] == (files if times[0] < times[1] else files[::-1])


@pytest.mark.parametrize("times", [(100, 200), (200, 100), (200, 0)])
def test_pieces_of_one_trace_stay_in_its_order(times: tuple[int, int], tmp_path: Path) -> None:
    """An estimated time may go back."""
    file = tmp_path / "cpu-0.arrow"
    write_task(file, [([A],), ([B],)], [
        {"thread": 0, "tsc": times[0]},
        {"thread": 0, "tsc": times[1], "flow": 1, "seq": 1, "instructions": 3, "branches": 1},
    ], flow_ids=[0, 1], clock=[])
    (part,) = parts_of(Assembler(interleaved=True), [("cpu-0", file)])
    assert [piece.begin for piece in part.pieces] == [0, 1]


@pytest.mark.parametrize("wrong", [{"flow": 9}, {"flow": -1}, {"clock": 5}, {"gap": 1}])
def test_pieces_beyond_the_rows_are_refused(tmp_path: Path, wrong: dict[str, int]) -> None:
    file = tmp_path / "cpu-0.arrow"
    write_task(file, [([A],)], [{"thread": 0}, {"thread": 0, "tsc": 1, **wrong}], flow_ids=[0, 0], clock=[])
    with pytest.raises(BadInput):
        parts_of(Assembler(), [("cpu-0", file)])


@pytest.mark.parametrize("ids", [[0, 1], [-1], [1 << 30]])
def test_flow_of_paths_there_are_none_of_is_refused(tmp_path: Path, ids: list[int]) -> None:
    file = tmp_path / "0.arrow"
    write_task(file, [([A],), ([B],)], [{"thread": 0}], flow_ids=[0, 1], clock=[])
    (part,) = parts_of(Assembler(), [("0", file)])
    write_task(file, [([A],), ([B],)], [{"thread": 0}], flow_ids=[0, 1], clock=[])
    file.with_suffix(".map").write_bytes(np.zeros(len(ids), np.int32).tobytes())
    if len(ids) == 2:
        write_part(part, tmp_path / "tables", CLOCKS)
    else:
        with pytest.raises(BadInput):
            write_part(part, tmp_path / "tables", CLOCKS)
