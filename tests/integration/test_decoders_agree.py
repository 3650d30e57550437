# SPDX-License-Identifier: MIT
"""The path decoder gives the same tables as libipt's: row by row, numbers of blocks and paths included.

PTWEAVE_AGREE=N runs N random programs, ten runs each, instead of a few; `make agree` runs a thousand.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ptweave.data import Clocks
from ptweave.data.bundle import Bundle
from ptweave.data.sideband import read_sideband
from ptweave.decode.expand import Expansion
from ptweave.decode.flow import decode_flow
from ptweave.decode.task import Decoder
from support import golden
from support.agreement import Decoders
from support.assembler import assemble
from support.busy_machine import Program
from support.command import compile_c
from support.engine import PROGRAMS, record_all
from support.inputs import text_file
from support.pt_writer import PtWriter
from support.random_program import random_run
from support.reference_traces import FOLDER, Case, cases
from support.repacket import repacket

COUNT = int(os.environ.get("PTWEAVE_AGREE", "24"))
GROUPS = 8
RUNS = 10
TABLES = ("flow", "clock", "pt_events", "gaps", "paths", "blocks")
REFERENCE = [case for case in cases() if case.truth is not None]  # those with code


def decoders(folder: Path, data: bytes, base: int, name: str = "image") -> Decoders:
    (folder / name).write_bytes(data)
    return Decoders([(folder / name, base, 0, len(data))])


# --- random programs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", range(GROUPS))
def test_random_programs(tmp_path: Path, group: int) -> None:
    handed = total = timed = 0
    for seed in range(group * COUNT // GROUPS, (group + 1) * COUNT // GROUPS):
        program = Program.random(seed, tmp_path)
        both = decoders(tmp_path, program.code.data, program.code.base, f"image-{seed}")
        for run in range(RUNS):
            machine = program.run(seed * 1000 + run)
            packets = bytes(machine.packets.data)
            libipt, paths = both.libipt(packets), both.paths(packets)
            assert libipt.differences(paths) == [], (seed, run)
            exact = both.paths(packets, exact=True)
            assert both.libipt(packets, exact=True).differences(exact) == [], (seed, run)
            timed += len(exact.rows["clock"]) * (not exact.handed)
            if machine.habits is not None and machine.habits.odd:
                continue  # what cannot be decoded is a gap
            instructions = sum(count for _, count in paths.instructions())
            assert len(machine.executed) >= instructions > len(machine.executed) - 200, (seed, run)
            if not machine.cycles:
                handed += paths.handed
                total += len(packets)
    assert total > 10_000
    assert handed <= total // 10
    assert timed > 100


@pytest.mark.parametrize("seed", range(12))
def test_the_executed_addresses_come_back(tmp_path: Path, seed: int) -> None:
    """The machine that ran the program is the oracle, not libipt."""
    machine = random_run(seed, tmp_path)
    both = decoders(tmp_path, machine.code.data, machine.code.base)
    paths = both.paths(bytes(machine.packets.data))
    assert paths.handed == 0
    starts = [machine.ip(index) for index in range(len(machine.program))]
    position = {ip: index for index, ip in enumerate(starts)}
    ran = [starts[position[ip] + i] for ip, count in paths.instructions() for i in range(count)]
    assert ran == machine.executed


def test_how_rows_are_batched_does_not_matter(tmp_path: Path) -> None:
    program = Program.random(5, tmp_path)
    both = decoders(tmp_path, program.code.data, program.code.base)
    packets = bytes(random_run(5, tmp_path / "other").packets.data)
    packets = bytes(program.run(5, steps=20_000).packets.data)
    small, large = both.paths(packets, flow_rows=64), both.paths(packets, flow_rows=1 << 16)
    assert small.rows["flow"] == large.rows["flow"]
    assert small.rows["event"] == large.rows["event"]
    assert len(small.rows["flow"]) > 1000


@pytest.mark.parametrize("seed", range(4))
def test_damaged_packets(tmp_path: Path, seed: int) -> None:
    """What cannot be decoded is libipt's to say, and is said the same."""
    chance = random.Random(seed)
    program = Program.random(seed, tmp_path)
    both = decoders(tmp_path, program.code.data, program.code.base)
    packets = bytes(program.run(seed).packets.data)
    same = 0
    for _ in range(200):
        damaged = bytearray(packets)
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        cut = bytes(damaged[:chance.randrange(1, len(damaged))] if chance.random() < 0.2 else damaged)
        libipt, paths = both.libipt(cut), both.paths(cut)
        differences = libipt.differences(paths)
        assert differences == []
        assert both.differences(cut, exact=True) == []
        same += not differences
        assert paths.progress["lost"] == sum(row[3] or 0 for row in paths.rows["gap"])
    assert same > 50


def test_control_another_branch_is_a_difference(tmp_path: Path) -> None:
    machine = random_run(3, tmp_path)
    both = decoders(tmp_path, machine.code.data, machine.code.base)
    packets = bytearray(machine.packets.data)
    at = next(i for i in range(len(packets)) if packets[i] == 0x0D | 1 << 5)
    packets[at + 1] ^= 0x10
    assert both.libipt(bytes(machine.packets.data)).differences(both.paths(bytes(packets)))


# --- the same bytes that mean something else --------------------------------------------------------------------------


def test_the_same_bytes_after_another_address(tmp_path: Path) -> None:
    """A TIP of two bytes is completed with the address before it: from one place it leads to two."""
    code = assemble("x: jmp n\nn: jz n\njmp *%rax\n.org 0x10000\ny: jmp n", tmp_path)
    assert (code["x"] ^ code["y"]) & 0xFFFF == 0
    packets = PtWriter().psb_plus().mode_exec().pge(code["x"])
    ran = [code["x"]]
    for label in "xxxxyyyyxyxyyyxx":  # after twelve rounds execution stands at the branch, wherever it came from
        packets.tnt("!!!!!!").tnt("!!!!!!").tnt(".").tip(code[label])
        ran.append(code[label])
    both = decoders(tmp_path, code.data, code.base)
    paths = both.paths(bytes(packets.pgd().data))
    assert both.libipt(bytes(packets.data)).differences(paths) == []
    assert [ip for ip, _ in paths.instructions() if ip in (code["x"], code["y"])] == ran
    assert paths.handed == 0


def test_the_same_bytes_after_another_call(tmp_path: Path) -> None:
    """A return leads to where the call was, and the same packets follow."""
    code = assemble("m: jmp *%rax\none: call *%rax\nbehind_one: jmp *%rax\n"
                    "two: call *%rax\nbehind_two: nop\njmp *%rax\nf: ret", tmp_path)
    packets = PtWriter().psb_plus().mode_exec().pge(code["m"])
    ran = []
    for site in ("one", "one", "one", "two", "one", "two", "two"):
        packets.tip(code[site]).tip(code["f"]).tnt("!").tip(code["m"])
        ran += [code["m"], code[site], code["f"], code[f"behind_{site}"]]
    both = decoders(tmp_path, code.data, code.base)
    paths = both.paths(bytes(packets.pgd().data))
    assert both.libipt(bytes(packets.data)).differences(paths) == []
    assert [ip for ip, _ in paths.instructions()][:len(ran)] == ran
    assert paths.handed == 0


def test_the_same_bytes_after_other_bits(tmp_path: Path) -> None:
    """Bits that a TNT before has left over decide with those that come."""
    code = assemble("a: jz b\njz c\njmp *%rax\nb: nop\njmp *%rax\nc: nop\nnop\njmp *%rax", tmp_path)
    packets = PtWriter().psb_plus().mode_exec().pge(code["a"])
    ran = []
    for first in "..!!.!!.":
        packets.tnt(first)
        if first == ".":
            packets.tnt("!")
        packets.tip(code["a"])
        ran += [code["a"], code["b"]] if first == "!" else [code["a"], code["a"] + 2, code["c"]]
    both = decoders(tmp_path, code.data, code.base)
    paths = both.paths(bytes(packets.pgd().data))
    assert both.libipt(bytes(packets.data)).differences(paths) == []
    assert [ip for ip, _ in paths.instructions()][:len(ran)] == ran
    assert paths.handed == 0


# --- every golden case ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", sorted({file for file, _ in golden.texts().values()}))
def test_golden_cases(tmp_path: Path, file: str) -> None:
    """Damage, errata, overflows, modes and all: addresses, events with their times and places, gaps, moments."""
    names = [name for name, (where, _) in golden.texts().items() if where == file]
    for name in names:
        case = golden.load(name)
        libipt, paths = (golden.bundle(case, tmp_path / f"{name}-{decoder}.ptw").decode(decoder=decoder)
                         for decoder in (Decoder.LIBIPT, Decoder.PATHS))
        for what in (golden.addresses, golden.events, golden.gaps, golden.clock):
            assert what(paths) == what(libipt), (name, what.__name__)  # type: ignore[operator]
    assert names


# --- code that comes and goes -----------------------------------------------------------------------------------------


def test_other_code_at_the_same_address(tmp_path: Path) -> None:
    """Spaces in turn, each with other code at the address of the one before: nothing remembered is taken for it."""
    pieces = [assemble("jz 1f\nnop\n1: " + "nop\n" * count + "syscall", tmp_path, name=f"code{count}")
              for count in range(1, 6)]
    for piece, number in zip(pieces, range(5), strict=True):
        (tmp_path / str(number)).write_bytes(piece.data)
    both = Decoders([])
    from ptweave.decode._ipt import lib
    sections = [lib.ptd_images_add(both.images, bytes(tmp_path / str(number)), number, 0, len(piece.data), piece.base)
                for number, piece in enumerate(pieces)]
    packets = bytes(PtWriter().psb_plus(tsc=1).mode_exec().pge(pieces[0].base).tnt("!").pgd().data)
    for number in [0, 1, 2, 0, 3, 4, 1]:
        space = both.space_of([sections[number]])
        libipt, paths = both.libipt(packets, space=space), both.paths(packets, space=space)
        assert libipt.differences(paths) == []
        assert paths.handed == 0
        assert sum(count for _, count in paths.instructions()) == number + 3


def test_libraries_that_are_added_keep_what_is_known(tmp_path: Path) -> None:
    code = assemble("a: jz b\nnop\njmp a\nb: syscall", tmp_path)
    more = assemble("nop\nsyscall", tmp_path, 0x900000, name="more")
    (tmp_path / "0").write_bytes(code.data)
    (tmp_path / "1").write_bytes(more.data)
    both = Decoders([(tmp_path / "0", code.base, 0, len(code.data)), (tmp_path / "1", more.base, 0, len(more.data))])
    packets = bytes(PtWriter().psb_plus(tsc=1).mode_exec().pge(code.base).tnt("...!").pgd().data)
    for sections in ([0], [0, 1], [1], [0]):
        from ptweave.decode._ipt import lib
        numbers = [lib.ptd_images_add(both.images, bytes(both.code[i][0]), i, 0, both.code[i][3], both.code[i][1])
                   for i in sections]
        space = both.space_of(numbers)
        assert both.libipt(packets, space=space).differences(both.paths(packets, space=space)) == []


# --- recorded programs ------------------------------------------------------------------------------------------------

C_SOURCE = "int f(int x) { int s = 0; for (int i = 0; i < x; i++) s += i % 7 ? i : -s; return s; }\n"
SQL = ("create table t(a,b); with recursive c(x) as (select 1 union all select x+1 from c where x<800) "
       "insert into t select x, x*x%97 from c; select count(*), sum(a*b) from t where b>7;")


def recorded(folder: Path) -> dict[str, list[str]]:
    text = str(text_file(folder / "text", 30_000))
    (folder / "source.c").write_text(C_SOURCE)

    def built(source: str, *flags: str) -> str:
        return str(compile_c(PROGRAMS / source, folder / Path(source).stem, *flags))

    return {
        "ls": ["ls", "-l", "/usr"], "gzip": ["gzip", "-c", text], "sort": ["sort", text], "wc": ["wc", text],
        "sha256sum": ["sha256sum", text], "grep": ["grep", "-c", "e.*s", text], "sed": ["sed", "-n", "s/a/b/p", text],
        "awk": ["awk", "{ n += NF } END { print n }", text], "od": ["od", "-An", "-tx1", text],
        "tr": ["sh", "-c", f"tr a-z A-Z < {text} | head -3"], "find": ["find", "/usr/share/doc/valgrind"],
        "xz": ["xz", "-0", "-c", text], "diff": ["diff", text, str(folder / "source.c")],
        "perl": ["perl", "-e", "my %h; $h{$_ % 17} += $_ for 1..3000; print scalar keys %h"],
        "python3": [sys.executable, "-S", "-c", "print(sum(hash(str(i)) % 7 for i in range(500)) > 0)"],
        "sqlite3": ["sqlite3", ":memory:", SQL],
        "gcc": ["gcc", "-O1", "-c", "-o", str(folder / "thing.o"), str(folder / "source.c")],
        "threads": [built("four_threads.c", "-pthread"), "5"], "signals": [built("signals.c", "-pthread")],
        "forks": [built("forks.c", "-pthread"), "refuse"], "code in memory": [built("jit.c", "-pthread")],
        "exec": [built("exec_from_thread.c", "-pthread")],
    }


NAMES = ("ls", "gzip", "sort", "wc", "sha256sum", "grep", "sed", "awk", "od", "tr", "find", "xz", "diff", "perl",
         "python3", "sqlite3", "gcc", "threads", "signals", "forks", "code in memory", "exec")


def tables_of(bundle: Bundle, decoder: Decoder) -> dict[str, pa.Table]:
    decode_flow(bundle, decoder=decoder)
    return {name: pq.read_table(bundle.tables / name) for name in TABLES}


def assert_equal(bundle: Bundle) -> dict[str, pa.Table]:
    libipt, paths = tables_of(bundle, Decoder.LIBIPT), tables_of(bundle, Decoder.PATHS)
    for name in TABLES:
        assert libipt[name].equals(paths[name]), name
    return paths


@pytest.mark.parametrize("name", NAMES)
def test_recorded_programs(name: str, tmp_path: Path) -> None:
    recording = record_all(recorded(tmp_path)[name], tmp_path, log=True, options=("--pt-psb-kb=4",))
    recording.bundle.manifest.clocks = Clocks(0, 0, 1 << 40, 1 << 40)
    recording.bundle.save_manifest()
    tables = assert_equal(recording.bundle)
    assert len(tables["flow"]) > 1000
    assert len(tables["gaps"]) == 0
    logged = {(ran.count, ran.hash) for _, _, ran in recording.logs}
    if name not in ("exec", "forks", "gcc", "tr"):  # there a thread is several streams of the engine's log
        threads = read_sideband(recording.bundle.sideband)
        numbers = threads.filter(pc.equal(threads["kind"], "thread"))["thread"].to_pylist()
        expansion = Expansion(recording.bundle)
        assert {expansion.hash(number) for number in numbers} == logged


@pytest.mark.parametrize(("most", "filler"), [(6, b""), (47, b""), (1, b""), (5, b"\0"), (6, b"\x59\x07")],
                         ids=["short", "long", "single", "padded", "clocks"])
@pytest.mark.parametrize("seed", range(6))
def test_other_packets_for_the_same_run(tmp_path: Path, seed: int, most: int, filler: bytes) -> None:
    machine = random_run(seed, tmp_path, steps=6000)
    both = decoders(tmp_path, machine.code.data, machine.code.base)
    packets = bytes(machine.packets.data)
    before, after = both.paths(packets), both.paths(repacket(packets, most, filler))
    assert before.handed == after.handed == 0
    assert after.rows["flow"] == before.rows["flow"]
    assert after.paths == before.paths
    assert sum(count for _, count in after.instructions()) == len(machine.executed)


# --- real processors --------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not REFERENCE, reason=f"no reference traces in {FOLDER} (set PTWEAVE_PTDATA)")
@pytest.mark.parametrize("case", REFERENCE, ids=lambda case: case.folder.name)
def test_reference_traces(case: Case, tmp_path: Path) -> None:
    bundle = case.bundle(tmp_path / "run.ptw").write()
    libipt, paths = tables_of(bundle, Decoder.LIBIPT), tables_of(bundle, Decoder.PATHS)
    addresses = np.concatenate([*Expansion(bundle).addresses(0), np.zeros(0, np.uint64)])
    assert len(addresses) == case.truth["instructions"]
    for name in TABLES:
        assert libipt[name].equals(paths[name]), name
