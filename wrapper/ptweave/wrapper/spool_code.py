# SPDX-License-Identifier: MIT
"""Turns the engine's pieces of stored code into images and the sideband's rows about them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ptweave.wrapper.images import ImageStore, MappedFile
from ptweave.wrapper.spool_format import read_at

CHANGED_FILE_MAX = 256 << 20
"""Bytes of a file beyond which changed code of it is kept without the file."""


@dataclass(frozen=True)
class CodePiece:
    """Code as it was in memory when it ran: `size` bytes at `addr`, in the code file at `offset`."""

    addr: int
    size: int
    offset: int
    epoch: int
    tsc: int


@dataclass(frozen=True)
class FileMap:
    """A file mapped with code, and the sideband row that says so."""

    file: MappedFile
    offset: int
    epoch: int
    row: dict[str, object]


def place_code(pieces: list[CodePiece], code: bytes, maps: list[FileMap],
               images: ImageStore) -> list[dict[str, object]]:
    """One image for the process image's stored code, and a row for each run of it.

    Pieces that are still what the file mapped there holds are left to the file: it has symbols. Where a file's code was
    changed in memory, as probes do, the image is the file with the changes in it. Columns: addr, size, offset (in the
    image), epoch, image, tsc.
    """
    pieces = [piece for piece in pieces if piece.size > 0 and piece.offset + piece.size <= len(code)]
    pieces = _without_unchanged(pieces, code, maps, images)
    rows, pieces = _changed_files(pieces, code, maps, images)
    return rows + _loose(pieces, code, images)


def _loose(pieces: list[CodePiece], code: bytes, images: ImageStore) -> list[dict[str, object]]:
    blob = bytearray()
    rows: list[dict[str, object]] = []
    for run in _runs(pieces):
        rows.append({"addr": run[0].addr, "size": sum(piece.size for piece in run), "offset": len(blob),
                     "epoch": run[0].epoch, "tsc": max(piece.tsc for piece in run)})
        for piece in run:
            blob += code[piece.offset:piece.offset + piece.size]
    if rows:
        image = images.keep_bytes(bytes(blob))
        for row in rows:
            row["image"] = image
    return rows


def _changed_files(pieces: list[CodePiece], code: bytes, maps: list[FileMap],
                   images: ImageStore) -> tuple[list[dict[str, object]], list[CodePiece]]:
    """Rows for pieces that lie over files, and the pieces that do not, or that contradict each other."""
    over: dict[int, tuple[FileMap, list[CodePiece]]] = {}
    left: list[CodePiece] = []
    for piece in pieces:
        below = [one for one in maps if one.epoch <= piece.epoch and one.file.start <= piece.addr
                 and piece.addr + piece.size <= one.file.end]
        if below and isinstance(below[-1].row["image"], str):
            over.setdefault(id(below[-1]), (below[-1], []))[1].append(piece)
        else:
            left.append(piece)
    patched: dict[str, bytearray] = {}
    written: dict[str, dict[int, int]] = {}
    placed: list[tuple[str, dict[str, object]]] = []
    for below_all, found in over.values():
        name = str(below_all.row["image"])
        if not _overlay(name, below_all, found, code, images, patched, written):
            left += found
            continue
        placed += [(name, {"addr": run[0].addr, "size": sum(piece.size for piece in run),
                           "offset": below_all.offset + run[0].addr - below_all.file.start, "epoch": run[0].epoch,
                           "tsc": max(piece.tsc for piece in run)}) for run in _runs(found)]
    kept = {name: images.keep_bytes(bytes(data)) for name, data in patched.items()}
    return [{**row, "image": kept[name]} for name, row in placed], left


def _overlay(name: str, below: FileMap, pieces: list[CodePiece], code: bytes, images: ImageStore,
             patched: dict[str, bytearray], written: dict[str, dict[int, int]]) -> bool:
    """Put pieces over a file's bytes. False, and nothing done: two of them disagree, or the file is not as large."""
    path = images.path(name)
    size = path.stat().st_size
    if size > CHANGED_FILE_MAX:
        return False
    before = written.get(name, {})
    now = dict(before)
    for piece in pieces:
        at = below.offset + piece.addr - below.file.start
        if at + piece.size > size:
            return False
        for offset in range(piece.size):
            byte = code[piece.offset + offset]
            if now.setdefault(at + offset, byte) != byte:
                return False
    data = patched.setdefault(name, bytearray(path.read_bytes()))
    for at, byte in now.items():
        data[at] = byte
    written[name] = now
    return True


def _runs(pieces: list[CodePiece]) -> list[list[CodePiece]]:
    """Pieces of one epoch that follow each other in memory, together."""
    runs: list[list[CodePiece]] = []
    for piece in sorted(pieces, key=lambda one: (one.epoch, one.addr, one.offset)):
        last = runs[-1][-1] if runs else None
        if last is not None and last.epoch == piece.epoch and last.addr + last.size == piece.addr:
            runs[-1].append(piece)
        else:
            runs.append([piece])
    return runs


def _without_unchanged(pieces: list[CodePiece], code: bytes, maps: list[FileMap],
                       images: ImageStore) -> list[CodePiece]:
    kept: list[CodePiece] = []
    changed: list[CodePiece] = []  # pieces that lie over a file and differ from it
    for piece in pieces:
        below = [one for one in maps if one.epoch <= piece.epoch and one.file.start <= piece.addr
                 and piece.addr + piece.size <= one.file.end]
        if below:
            over = any(one.addr < piece.addr + piece.size and piece.addr < one.addr + one.size for one in changed)
            if not over and _in_file(piece, code, below[-1], images):
                continue
            changed.append(piece)
        kept.append(piece)
    return kept


def _in_file(piece: CodePiece, code: bytes, below: FileMap, images: ImageStore) -> bool:
    name = below.row["image"]
    if not isinstance(name, str):
        return False
    offset = below.offset + piece.addr - below.file.start
    path: Path = images.path(name)
    return read_at(path, offset, piece.size) == code[piece.offset:piece.offset + piece.size]
