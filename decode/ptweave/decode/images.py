# SPDX-License-Identifier: MIT
"""Which code was where: the sideband's maps as images, address spaces in each epoch, and the rows of two tables.

An image set is a list of `Mapping`s that do not overlap, sorted by address. Sidebands come from the target's
machine: names are checked before they become paths, ranges before they become mappings.
"""

from __future__ import annotations

import hashlib
import re
import stat
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ptweave.data.errors import BadInput
from ptweave.data.schemas import IMAGES
from ptweave.data.sideband import SidebandKind
from ptweave.decode.elf import BadElf, Elf

PLAIN_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,255}\Z")
ADDRESS_END = (1 << 64) - 1
"""Mappings end below it, so that their ends are addresses too."""


@dataclass
class Image:
    """A file whose code ran. `file` is None when the bundle does not have it, or another one under its name.

    `problems` say, in words, what is wrong with it or its symbols; `debug` is what its names come from beside itself.
    """

    number: int
    name: str | None
    path: str | None
    file: Path | None
    size: int | None
    elf: Elf | None = None
    problems: list[str] = field(default_factory=list)
    debug: str | None = None

    @property
    def kind(self) -> str:
        """`images.kind`: elf, raw or missing."""
        if self.file is None:
            return "missing"
        return "raw" if self.elf is None else "elf"

    @property
    def build_id(self) -> str | None:
        return None if self.elf is None else self.elf.build_id

    def __str__(self) -> str:
        words = [self.path or "code in anonymous memory"]
        if self.name:
            words.append(f"({self.name})")
        if self.file is None and self.problems:
            words.append(f"[{'; '.join(self.problems)}]")
        return " ".join(words)


@dataclass(frozen=True)
class Mapping:
    """Bytes of an image from `offset` on, at addresses `start` to `end`, since an epoch."""

    start: int
    end: int
    offset: int
    image: Image
    since: int = 0


@dataclass(frozen=True)
class Change:
    """One map, code or unmap row of an address space; `image` is None for an unmap."""

    epoch: int
    start: int
    end: int
    offset: int
    image: Image | None


class Layout:
    """The mappings of one address space while its changes are replayed in order."""

    def __init__(self) -> None:
        self.mappings: list[Mapping] = []

    def apply(self, change: Change) -> list[Mapping]:
        """Carry a change out; returns the mappings, or parts of them, it took away."""
        first = bisect_right(self.mappings, change.start, key=lambda m: m.end)
        last = bisect_left(self.mappings, change.end, key=lambda m: m.start)
        gone: list[Mapping] = []
        kept: list[Mapping] = []
        for old in self.mappings[first:last]:
            start, end = max(old.start, change.start), min(old.end, change.end)
            if old.start < start:
                kept.append(replace(old, end=start))
            gone.append(replace(old, start=start, end=end, offset=old.offset + start - old.start))
            if end < old.end:
                kept.append(replace(old, start=end, offset=old.offset + end - old.start))
        if change.image is not None:
            kept.append(Mapping(change.start, change.end, change.offset, change.image, change.epoch))
        self.mappings[first:last] = sorted(kept, key=lambda m: m.start)
        return gone


def coalesce(mappings: list[Mapping]) -> list[Mapping]:
    """Join neighbours that are one stretch of the same image: a block may cross from one to the next."""
    joined: list[Mapping] = []
    for mapping in mappings:
        last = joined[-1] if joined else None
        if last is not None and last.image is mapping.image and last.end == mapping.start and (
                last.offset + last.end - last.start == mapping.offset):
            joined[-1] = replace(last, end=mapping.end)
        else:
            joined.append(mapping)
    return joined


class Space:
    """One address space: its changes in the order they were recorded."""

    def __init__(self, number: int, pid: int) -> None:
        self.number = number
        self.pid = pid
        self.changes: list[Change] = []
        self._layout = Layout()
        self._next = 0
        self._epoch = -1
        self._ordered: bool | None = None

    def images(self) -> set[int]:
        """Numbers of the images that were ever mapped in it."""
        return {change.image.number for change in self.changes if change.image is not None}

    def at(self, epoch: int) -> list[Mapping]:
        """The image set of an epoch. Quick when epochs are asked for in ascending order."""
        if self._ordered is None:
            self._ordered = all(a.epoch <= b.epoch for a, b in pairwise(self.changes))
        if epoch < self._epoch or not self._ordered:
            self._layout, self._next = Layout(), 0
        self._epoch = epoch
        while self._next < len(self.changes):
            change = self.changes[self._next]
            if change.epoch <= epoch:
                self._layout.apply(change)
            elif self._ordered:
                break
            self._next += 1
        return coalesce(self._layout.mappings)

    def history(self) -> Iterator[tuple[Mapping, int | None]]:
        """Every mapping there ever was, with the epoch it went away in (None: it stayed)."""
        layout = Layout()
        for change in sorted(self.changes, key=lambda c: c.epoch):
            for mapping in layout.apply(change):
                if mapping.since < change.epoch:
                    yield mapping, change.epoch
        for mapping in layout.mappings:
            yield mapping, None


class Code:
    """All images and address spaces of a run. `forked_from`: process id → the one it is a fork or a thread of."""

    def __init__(self, sideband: pa.Table, folder: Path) -> None:
        self.folder = folder
        self.images: list[Image] = []
        self.spaces: dict[int, Space] = {}
        self.forked_from: dict[int, int] = {}
        self._by_name: dict[tuple[str | None, str | None], Image] = {}
        for row in sideband.filter(pc.equal(sideband["kind"], SidebandKind.PROCESS.value)).to_pylist():
            if row["detail"] in ("fork", "thread") and row["value"]:
                self.forked_from[row["pid"]] = row["value"]
        wanted = [SidebandKind.MAP.value, SidebandKind.CODE.value, SidebandKind.UNMAP.value]
        rows = sideband.filter(pc.is_in(sideband["kind"], pa.array(wanted)))
        for row in rows.to_pylist():
            self._add(row)

    def _add(self, row: dict[str, Any]) -> None:
        space = self.space(row["space"], row["pid"])
        start, size, epoch = row["addr"], row["size"], row["epoch"] or 0
        if start is not None and size and start + size == ADDRESS_END + 1:
            size -= 1  # up to the last address: all but that one
        if start is None or not size or start + size > ADDRESS_END:
            return  # no range: nothing can run there
        image = None
        if row["kind"] != SidebandKind.UNMAP:
            image = self._image(row["image"], row["path"])
        space.changes.append(Change(epoch, start, start + size, row["offset"] or 0, image))

    def space(self, number: int, pid: int = 0) -> Space:
        """The address space of that number; an empty one when the sideband has no map in it."""
        return self.spaces.setdefault(number, Space(number, pid))

    def _image(self, name: str | None, path: str | None) -> Image:
        # the same file may be known by several paths: its name decides; without a name the path must do
        key = (name, None if name else path)
        known = self._by_name.get(key)
        if known is None:
            file, size = self._file(name)
            known = Image(len(self.images), name, path, file, size)
            _open(known)
            self.images.append(known)
            self._by_name[key] = known
        return known

    def _file(self, name: str | None) -> tuple[Path | None, int | None]:
        if name is None or not PLAIN_NAME.match(name):
            return None, None
        file = self.folder / name
        try:
            status = file.lstat()
        except OSError:
            return None, None
        return (file, status.st_size) if stat.S_ISREG(status.st_mode) else (None, None)

    def image_rows(self) -> list[dict[str, object]]:
        """Rows of the table `images`."""
        return [{"image": i.number, "name": i.name, "path": i.path, "build_id": i.build_id, "size": i.size,
                 "kind": i.kind, "debug": i.debug, "problem": "; ".join(i.problems) or None} for i in self.images]

    def map_rows(self) -> list[dict[str, object]]:
        """Rows of the table `maps`, sorted by space and address."""
        rows: list[dict[str, object]] = []
        for number in sorted(self.spaces):
            space = self.spaces[number]
            found = sorted(space.history(), key=lambda pair: (pair[0].start, pair[0].since))
            rows += [{"space": number, "pid": space.pid, "start": m.start, "end": m.end, "offset": m.offset,
                      "image": m.image.number, "since": m.since, "until": until} for m, until in found]
        return rows


def damaged_images(tables: Path) -> list[str]:
    """Paths (or names) of a decoded run's images that have a problem. Raises BadInput when the table cannot be read."""
    folder, columns = tables / IMAGES.name, ["path", "name", "problem"]
    try:
        rows = [row for file in sorted(folder.glob("*.parquet"))
                for row in pq.ParquetFile(file).read(columns).select(columns).to_pylist()]
    except (OSError, KeyError, pa.ArrowException) as error:
        raise BadInput(f"cannot be read ({error})", where=str(folder), remedy="decode the run again") from error
    return [str(row["path"] or row["name"]) for row in rows if row["problem"]]


def _open(image: Image) -> None:
    """Read an image's headers; one whose build id is not the one it is kept under is not the file that ran."""
    if image.file is None:
        return
    try:
        image.elf = Elf.open(image.file)
    except BadElf as error:
        image.elf = None  # raw: it has code all the same
        if _begins_like_elf(image.file):
            image.problems.append(f"ELF header: {error}")
        return
    found = image.elf.build_id
    if found is not None and image.name != found and not _is_digest(image.file, image.name):
        image.problems.append(f"the kept file has build id {found}")
        image.file = image.size = image.elf = None


def _begins_like_elf(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(4) == b"\x7fELF"


def _is_digest(file: Path, name: str | None) -> bool:
    """Whether a name is the file's sha256, or no build id at all."""
    if name is None or not re.fullmatch("[0-9a-f]{8,128}", name):
        return True
    if len(name) != 64:
        return False
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest() == name
