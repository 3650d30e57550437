# SPDX-License-Identifier: MIT
"""What is wrong with a kept file is told: in the table `images`, in `gaps` when nothing can be decoded, in a line."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import Any

import pytest

from ptweave.decode.images import damaged_images
from support.assembler import assemble
from support.command import ptweave
from support.elf_writer import ElfWriter
from support.pt_writer import PtWriter
from support.trace_bundle import Decoded, TraceBundle

BASE = 0x400000
ID = bytes(range(20))


def writer(tmp_path: Path, *, build_id: bytes | None = ID) -> tuple[ElfWriter, bytes]:
    """An ELF file with a function in it, and the function's code."""
    code = assemble("nop\n nop\n ret\n", tmp_path, base=BASE).data
    elf = ElfWriter().segment(0, BASE, 0x1000).add(".text", code, address=BASE)
    if build_id is not None:
        elf.build_id(build_id)
    return elf, code


def decode(tmp_path: Path, data: bytes, code: bytes, name: str) -> Decoded:
    """Run the function out of a kept file of that name."""
    begin = data.index(code) & ~0xF
    entry = BASE + data.index(code)
    bundle = TraceBundle(tmp_path / "run.ptw").map(data, BASE + begin, name=name, offset=begin, path="/bin/prog")
    packets = PtWriter().psb_plus().mode_exec().pge(entry).pgd()
    return bundle.thread(packets.data).decode()


def image(decoded: Decoded) -> dict[str, Any]:
    rows = decoded.rows("images")
    assert len(rows) == 1
    return rows[0]


@pytest.mark.parametrize("named_by", ["build id", "digest", "word"])
def test_a_file_under_its_own_name_has_no_problem(tmp_path: Path, named_by: str) -> None:
    elf, code = writer(tmp_path)
    data = elf.data()
    name = {"build id": ID.hex(), "digest": hashlib.sha256(data).hexdigest(), "word": "code"}[named_by]
    decoded = decode(tmp_path, data, code, name)
    assert (image(decoded)["kind"], image(decoded)["problem"]) == ("elf", None)
    assert decoded.gaps() == []
    assert damaged_images(decoded.bundle.tables) == []
    done = ptweave("decode", decoded.bundle.path)
    assert not any("damaged" in line for line in done.lines)


@pytest.mark.parametrize("name", ["ff" * 20, "ee" * 32])
def test_another_file_under_a_build_id_is_missing_and_said(tmp_path: Path, name: str) -> None:
    elf, code = writer(tmp_path)
    decoded = decode(tmp_path, elf.data(), code, name)
    assert (image(decoded)["kind"], image(decoded)["problem"]) == ("missing", f"the kept file has build id {ID.hex()}")
    gap, = decoded.rows("gaps")
    assert gap["kind"] == "missing_image"
    assert "/bin/prog" in gap["detail"]
    assert name in gap["detail"]
    assert ID.hex() in gap["detail"]


def test_damaged_symbols_are_said_and_the_code_decodes(tmp_path: Path) -> None:
    elf, code = writer(tmp_path)
    elf.add(".symtab", bytes(48), type=2, link="", entry_size=24)
    data = bytearray(elf.data())
    headers = struct.unpack_from("<Q", data, 40)[0]
    struct.pack_into("<Q", data, headers + 64 * 3 + 32, 1 << 40)  # the table's size
    decoded = decode(tmp_path, bytes(data), code, ID.hex())
    assert decoded.gaps() == []
    assert len(decoded.flow()) == 1
    assert image(decoded)["problem"] == "symbols: section .symtab outside the file"
    assert damaged_images(decoded.bundle.tables) == ["/bin/prog"]


def test_the_user_is_told_how_many(tmp_path: Path) -> None:
    elf, code = writer(tmp_path)
    data = bytearray(elf.data())
    struct.pack_into("<H", data, 60, 0xFFFF)  # more sections than bytes
    decoded = decode(tmp_path, bytes(data), code, "prog")
    assert image(decoded)["problem"] == "section headers: headers outside the file"
    done = ptweave("decode", decoded.bundle.path)
    assert [line for line in done.lines if "1 image has damaged symbol tables" in line and "/bin/prog" in line]


def test_a_file_that_only_begins_like_an_elf_file_is_said(tmp_path: Path) -> None:
    _, code = writer(tmp_path)
    decoded = decode(tmp_path, b"\x7fELF\x02\x02" + bytes(90) + code, code, "prog")
    assert (image(decoded)["kind"], len(decoded.flow())) == ("raw", 1)
    assert image(decoded)["problem"].startswith("ELF header: ")


def test_a_folder_for_debug_files_has_to_be_there(tmp_path: Path) -> None:
    elf, code = writer(tmp_path)
    decoded = decode(tmp_path, elf.data(), code, ID.hex())
    done = ptweave("decode", "--debug-dir", tmp_path / "absent", decoded.bundle.path)
    assert (done.status, len(done.lines)) == (2, 1)
    assert str(tmp_path / "absent") in done.lines[0]


def test_a_debug_folder_gives_names(tmp_path: Path) -> None:
    elf, code = writer(tmp_path)
    decoded = decode(tmp_path, elf.data(), code, ID.hex())
    assert decoded.rows("blocks")[0]["function"] is None
    place = tmp_path / "debug" / ".build-id" / ID.hex()[:2]
    place.mkdir(parents=True)
    debug = ElfWriter().build_id(ID).symbols([("_Z3runv", BASE, 0x800, 0x12)])
    (place / f"{ID.hex()[2:]}.debug").write_bytes(debug.data())
    done = ptweave("decode", "-q", "--debug-dir", tmp_path / "debug", decoded.bundle.path)
    assert done.status == 0, done.err
    assert decoded.rows("blocks")[0]["function"] == "run()"
    assert image(decoded)["debug"] == str(place / f"{ID.hex()[2:]}.debug")


def test_servers_in_the_environment_are_not_asked_unless_told_to(tmp_path: Path) -> None:
    elf, code = writer(tmp_path)
    decoded = decode(tmp_path, elf.data(), code, ID.hex())
    nobody = {"DEBUGINFOD_URLS": "http://127.0.0.1:1", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert "debuginfod" not in ptweave("decode", decoded.bundle.path, env=nobody).err
    asked = ptweave("decode", "--debuginfod", decoded.bundle.path, env=nobody)
    assert [line for line in asked.lines if line.startswith("ptweave: debuginfod: http://127.0.0.1:1: ")]
    assert asked.status == 0
    unset = ptweave("decode", "--debuginfod", decoded.bundle.path, env={"DEBUGINFOD_URLS": ""})
    assert unset.status == 2
    assert "DEBUGINFOD_URLS" in unset.err
