# SPDX-License-Identifier: MIT
"""Executed files are kept once, by build id, and only if they are the file that was mapped."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptweave.wrapper.images import ImageStore, MappedFile, _build_id_note, build_id
from support.spools import elf_with_build_id


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    (tmp_path / "images").mkdir()
    (tmp_path / "spool").mkdir()
    return ImageStore(tmp_path / "images", tmp_path / "spool")


def mapped(path: Path, **changes: int) -> MappedFile:
    found = path.stat()
    fields = {"dev": found.st_dev, "inode": found.st_ino, "mtime_ns": found.st_mtime_ns, "size": found.st_size,
              "pid": 0, "start": 0, "end": 0, **changes}
    return MappedFile(str(path), **fields)


def test_named_by_build_id(tmp_path: Path, store: ImageStore) -> None:
    file = tmp_path / "program"
    file.write_bytes(elf_with_build_id(b"\xab" * 20))
    assert store.keep(mapped(file)) == "ab" * 20
    assert store.path("ab" * 20).read_bytes() == file.read_bytes()


def test_named_by_sha256_without(tmp_path: Path, store: ImageStore) -> None:
    file = tmp_path / "program"
    file.write_bytes(b"no elf")
    assert store.keep(mapped(file)) == hashlib.sha256(b"no elf").hexdigest()


def test_kept_once(tmp_path: Path, store: ImageStore) -> None:
    file = tmp_path / "program"
    file.write_bytes(elf_with_build_id(b"\x01" * 20))
    one = mapped(file)
    store.keep(one)
    file.unlink()
    assert store.keep(one) == "01" * 20
    assert store.keep(mapped_like(one, size=0, mtime_ns=0)) == "01" * 20  # a fork child knows only the inode
    assert store.kept == 1


def mapped_like(file: MappedFile, **changes: int) -> MappedFile:
    return MappedFile(**{**file.__dict__, **changes})


def test_a_copied_build_id_does_not_hide_a_file(tmp_path: Path, store: ImageStore) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(elf_with_build_id(b"\x02" * 20, b"one"))
    second.write_bytes(elf_with_build_id(b"\x02" * 20, b"two"))
    assert store.keep(mapped(first)) == "02" * 20
    assert store.keep(mapped(second)) == hashlib.sha256(second.read_bytes()).hexdigest()


@pytest.mark.parametrize("change", ["dev", "inode", "mtime_ns", "size"])
def test_another_file_under_the_name_is_not_taken(tmp_path: Path, store: ImageStore, change: str) -> None:
    file = tmp_path / "program"
    file.write_bytes(b"code")
    one = mapped(file)
    assert store.keep(mapped_like(one, **{change: getattr(one, change) + 1})) is None


def test_a_link_is_not_followed(tmp_path: Path, store: ImageStore) -> None:
    file = tmp_path / "program"
    file.write_bytes(b"code")
    link = tmp_path / "link"
    link.symlink_to(file)
    assert store.keep(mapped_like(mapped(file), path=str(link))) is None  # type: ignore[arg-type]


def test_neither_a_fifo_nor_a_device_is_opened_for_long(tmp_path: Path, store: ImageStore) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert store.keep(mapped(fifo)) is None
    assert store.keep(mapped(Path("/dev/zero"))) is None


def test_the_engines_copy_is_taken_when_the_file_is_gone(tmp_path: Path, store: ImageStore) -> None:
    file = tmp_path / "program"
    file.write_bytes(b"code!")
    one = mapped(file)
    file.unlink()
    copy = tmp_path / "spool" / f"F{one.dev:x}.{one.inode:x}.{one.mtime_ns:x}.{one.size:x}"
    copy.write_bytes(b"cod")  # not whole
    assert store.keep(one) is None
    copy.write_bytes(b"code!")
    assert store.keep(one) == hashlib.sha256(b"code!").hexdigest()


@given(st.binary(max_size=300))
def test_any_elf_file_has_a_build_id_or_none(data: bytes) -> None:
    fd = os.memfd_create("elf")
    try:
        os.write(fd, b"\x7fELF\x02\x01" + data)
        found = build_id(fd)
        assert found is None or 8 <= len(found) <= 128
    finally:
        os.close(fd)


@given(st.binary(max_size=100))
def test_any_notes_have_a_build_id_or_none(data: bytes) -> None:
    found = _build_id_note(data)
    assert found is None or 8 <= len(found) <= 128
