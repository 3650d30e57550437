# SPDX-License-Identifier: MIT
"""Names of generated code: which maps are kept of a target, and what is read from them."""

from __future__ import annotations

import gc
import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from ptweave.data.bundle import perf_map_name
from ptweave.data.ledger import Ledger
from ptweave.data.sideband import SidebandKind
from ptweave.decode.perf_map import MAX_BYTES, PerfMap, parse_perf_map
from ptweave.wrapper import perf_maps
from ptweave.wrapper.perf_maps import PerfMaps
from support.assembler import assemble
from support.pt_writer import PtWriter
from support.trace_bundle import TraceBundle

GONE = 1 << 22
"""A pid that no process has."""


class Kept:
    """A folder of images, a /tmp, and the maps kept from there."""

    def __init__(self, folder: Path, since: int = 0) -> None:
        self.images, self.tmp = folder / "images", folder / "tmp"
        self.images.mkdir()
        self.tmp.mkdir()
        self.maps = PerfMaps(self.images, since, self.tmp)
        self.ledger = Ledger()

    def put(self, text: bytes = b"10 10 f\n", pid: int = GONE) -> Path:
        path = self.tmp / perf_map_name(pid)
        path.write_bytes(text)
        return path

    def keep(self, user: int | None = None) -> dict[str, bytes]:
        self.maps.watch(GONE, os.getuid() if user is None else user)
        self.maps.finish(self.ledger)
        assert self.ledger.check() == []
        return {file.name: file.read_bytes() for file in self.images.iterdir()}

    @property
    def lost(self) -> dict[str, int]:
        return self.ledger["perf maps"].lost if "perf maps" in self.ledger else {}


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def test_the_map_a_process_leaves_is_kept(kept: Kept) -> None:
    kept.put(b"10 10 f\n")
    kept.put(b"other", GONE + 1)
    assert kept.keep() == {f"perf-{GONE}.map": b"10 10 f\n"}
    assert (kept.ledger["perf maps"].stored, kept.lost) == (8, {})


def test_without_a_map_there_is_nothing_to_tell(kept: Kept) -> None:
    assert kept.keep() == {}
    assert "perf maps" not in kept.ledger


def test_a_link_is_not_followed(kept: Kept) -> None:
    (kept.tmp / "secret").write_text("secret")
    (kept.tmp / perf_map_name(GONE)).symlink_to(kept.tmp / "secret")
    assert kept.keep() == {}


def test_a_pipe_or_a_folder_is_not_taken(kept: Kept) -> None:
    os.mkfifo(kept.tmp / perf_map_name(GONE))
    assert kept.keep() == {}
    assert list(kept.lost) == ["not a file of the process's user"]


def test_another_users_file_is_not_taken(kept: Kept) -> None:
    kept.put(b"1234")
    assert kept.keep(user=os.getuid() + 12345) == {}
    assert kept.lost == {"not a file of the process's user": 4}


def test_a_map_from_before_the_recording_is_of_another_process(tmp_path: Path) -> None:
    kept = Kept(tmp_path, since=time.time_ns())
    old = time.time() - 1000
    os.utime(kept.put(), (old, old))
    assert kept.keep() == {}
    assert kept.lost == {}
    kept.put()
    assert kept.keep() != {}


def test_what_is_beyond_the_limit_is_counted(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf_maps, "SIZE_MAX", 1 << 20)
    kept.put(b"x" * ((1 << 20) + 5))
    assert len(kept.keep()[f"perf-{GONE}.map"]) == 1 << 20
    assert kept.lost == {"beyond 1 MiB": 5}


def test_a_full_disk_is_counted_and_leaves_nothing(kept: Kept) -> None:
    kept.put()
    kept.images.rmdir()
    kept.maps.watch(GONE, os.getuid())
    kept.maps.finish(kept.ledger)
    assert sum(kept.lost.values()) == 8


def named(known: PerfMap, *addresses: int) -> list[str | None]:
    found = known.functions.find(np.array(addresses, np.uint64)).tolist()
    return [known.functions.name(index) if index >= 0 else None for index in found]


def test_lines_name_ranges() -> None:
    known = parse_perf_map(b"1000 10 first one\n0x2000 0x8 LazyCompile:~f /a b.js:1\n1020 1 \xff\xfe\n")
    assert named(known, 0xFFF, 0x1000, 0x100F, 0x1010, 0x2007, 0x2008, 0x1020) == [
        None, "first one", "first one", None, "LazyCompile:~f /a b.js:1", None, "��"]
    assert (known.lines, known.malformed) == (3, 0)


def test_the_last_line_of_an_address_counts() -> None:
    assert named(parse_perf_map(b"1000 100 old\n1000 10 new\n"), 0x1000, 0x1010) == ["new", None]


@pytest.mark.parametrize("line", [b"", b"zz 10 f", b"1000 10", b"1000", b"1000 0 f", b"ffffffffffffffff 10 f",
                                  b"12345678901234567 1 f", b"1000 -5 f", b"\0\0\0", b"1000 10 a\0b"])
def test_other_lines_are_counted(line: bytes) -> None:
    known = parse_perf_map(b"1000 10 a\n" + line + b"\n2000 10 b\n")
    assert named(known, 0x1000, 0x2000) == ["a", "b"]
    assert (known.lines, known.malformed) == (3, 1)


def test_a_map_cut_in_a_line_keeps_the_others() -> None:
    known = parse_perf_map(b"1000 10 a\n2000 10 b\n30")
    assert (named(known, 0x1000, 0x2000), known.lines, known.malformed) == (["a", "b"], 3, 1)


def test_noise_is_bounded() -> None:
    chance = random.Random(3)
    for _ in range(300):
        known = parse_perf_map(bytes(chance.choice(b"0123456789abcdefx \t\n\0z") for _ in range(500)))
        assert 0 <= known.malformed <= known.lines


def test_a_large_map_is_read_in_seconds() -> None:
    text = b"".join(b"%x 10 LazyCompile:*function%d /app/file.js:%d\n" % (0x1000 + 32 * i, i, i) for i in range(300000))
    assert len(text) < MAX_BYTES
    began = time.process_time()
    known = parse_perf_map(text)
    assert time.process_time() - began < 5
    assert named(known, 0x1000 + 32 * 299999) == ["LazyCompile:*function299999 /app/file.js:299999"]


@pytest.mark.parametrize("own", [True, False])
def test_blocks_of_generated_code_get_the_maps_names(tmp_path: Path, own: bool) -> None:
    """`own`: the process wrote the map itself; else the one it is a fork of did."""
    code = assemble("nop\n nop\n ret\n after: jmp after\n", tmp_path, base=0x700000)
    bundle = TraceBundle(tmp_path / "run.ptw")
    bundle.row(SidebandKind.PROCESS, pid=100, value=77, detail="fork")
    bundle.row(SidebandKind.CODE, addr=code.base, size=len(code.data), offset=0, epoch=0, image="generated")
    bundle.files["generated"] = code.data
    bundle.files[perf_map_name(100 if own else 77)] = b"700000 3 _ZN3jit3runEv\nbad\n"
    packets = PtWriter().psb_plus().mode_exec().pge(code.base).tip(code["after"]).pgd()
    decoded = bundle.thread(packets.data).decode()
    rows = decoded.rows("blocks")
    assert [(row["function"], row["function_offset"]) for row in rows] == [("jit::run()", 0), (None, None)]
    image = decoded.rows("images")[0]
    name = perf_map_name(100 if own else 77)
    assert (image["kind"], image["debug"], image["problem"]) == (
        "raw", name, f"{name}: 1 of 2 lines are malformed")


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
def test_a_process_with_another_tmp_is_found_there(kept: Kept) -> None:
    """Such as one in a container: the map is taken from where the process saw /tmp."""
    gc.collect()  # what tests before left is not to go meanwhile
    held = len(os.listdir("/proc/self/fd"))
    script = ("mount -t tmpfs none /tmp && printf '10 10 inside\\n' > /tmp/perf-$$.map && echo ready && read line")
    with subprocess.Popen(["unshare", "--mount", "sh", "-c", script], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        kept.maps.watch(process.pid)
        process.communicate(b"\n", timeout=60)
    assert not (Path("/tmp") / perf_map_name(process.pid)).exists()
    kept.maps.ended(process.pid)
    kept.maps.finish(kept.ledger)
    assert (kept.images / perf_map_name(process.pid)).read_bytes() == b"10 10 inside\n"
    assert len(os.listdir("/proc/self/fd")) == held
