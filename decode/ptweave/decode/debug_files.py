# SPDX-License-Identifier: MIT
"""Separate debug files, on the machine that decodes: by build id, by debuglink, by debuginfod when that was asked for.

Where they are looked for (GDB manual, Separate Debug Files), the first that fits wins:

    ROOT/.build-id/xx/yyyy.debug        for each root: those of --debug-dir, then /usr/lib/debug
    FOLDER/LINK  FOLDER/.debug/LINK     FOLDER: the one the file was mapped from when it was recorded
    ROOT/FOLDER/LINK                    for each root
    debuginfod

A file fits when it has the same build id; when one of the two has none, when its CRC-32 is the one of the debuglink.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol, TypeVar

from ptweave.decode.elf import BadElf, Elf
from ptweave.decode.sections import AltLink, DebugLink, alt_link, debug_link

DEBUG_ROOT = Path("/usr/lib/debug")

T = TypeVar("T")


class Server(Protocol):
    """Something that has debug files by build id."""

    problems: list[str]

    def fetch(self, build_id: str) -> Path | None:
        """A file on this machine, None when nobody has it."""


@dataclass(frozen=True)
class DebugFile:
    """A debug file that fits, and the file dwz moved some of its contents to."""

    path: Path
    elf: Elf
    shared: Elf | None = None


class DebugFiles:
    """Finds debug files. `notes` of `find` say what was there and did not fit."""

    def __init__(self, roots: Sequence[Path] = (), server: Server | None = None) -> None:
        """`roots` are looked into before /usr/lib/debug."""
        self.roots = (*roots, DEBUG_ROOT)
        self.server = server

    @property
    def server_problems(self) -> list[str]:
        """What went wrong with debuginfod servers, in words."""
        return [] if self.server is None else self.server.problems

    def find(self, elf: Elf, path: str | None, notes: list[str]) -> DebugFile | None:
        """The debug file of `elf`, which was recorded as `path`."""
        build_id, link = elf.build_id, _link(lambda: debug_link(elf), notes)
        for candidate in self._by_build_id(build_id):
            found = _open(candidate)
            if found is not None:
                if found.build_id == build_id:
                    return self._with_shared(candidate, found, notes)
                notes.append(f"{candidate} is of another build")
        for candidate in self._by_link(link, path):
            found = _open(candidate)
            if found is not None and link is not None:
                if _fits(elf, found, link):
                    return self._with_shared(candidate, found, notes)
                notes.append(f"{candidate} is of another build")
        if self.server is not None and build_id:
            fetched = self.server.fetch(build_id)
            found = None if fetched is None else _open(fetched)
            if fetched is not None and found is not None and found.build_id == build_id:
                return self._with_shared(fetched, found, notes)
        return None

    def of_itself(self, elf: Elf, path: str | None, notes: list[str]) -> Elf | None:
        """The file that dwz moved some of `elf`'s own debug information to."""
        link = _link(lambda: alt_link(elf), notes)
        return None if link is None else self._shared(link, None if path is None else Path(path))

    def _by_build_id(self, build_id: str | None) -> Iterator[Path]:
        if build_id and len(build_id) > 2:
            for root in self.roots:
                yield root / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"

    def _by_link(self, link: DebugLink | None, path: str | None) -> Iterator[Path]:
        if link is None or path is None or not _is_plain(path):
            return
        folder = PurePosixPath(path).parent
        beside = Path(folder / link.name)
        if str(beside) != path:
            yield beside
        yield Path(folder / ".debug" / link.name)
        for root in self.roots:
            yield root / folder.relative_to("/") / link.name

    def _with_shared(self, path: Path, elf: Elf, notes: list[str]) -> DebugFile:
        link = _link(lambda: alt_link(elf), notes)
        return DebugFile(path, elf, None if link is None else self._shared(link, path))

    def _shared(self, link: AltLink, path: Path | None) -> Elf | None:
        candidates = list(self._by_build_id(link.build_id))
        if "\0" not in link.path and (path is not None or link.path.startswith("/")):
            candidates.append(Path(link.path) if path is None else path.parent / link.path)
        for candidate in candidates:
            found = _open(candidate)
            if found is not None and found.build_id == link.build_id:
                return found
        return None


def _link(read: Callable[[], T | None], notes: list[str]) -> T | None:
    try:
        return read()
    except BadElf as error:
        notes.append(str(error))
        return None


def _is_plain(path: str) -> bool:
    """Whether a recorded path says where a file was: absolute, without `..`."""
    if not path.startswith("/") or "\0" in path:
        return False
    return ".." not in PurePosixPath(path).parts


def _open(path: Path) -> Elf | None:
    try:
        return Elf.open(path)
    except BadElf:
        return None


def _fits(elf: Elf, found: Elf, link: DebugLink) -> bool:
    ours, theirs = elf.build_id, found.build_id
    if ours is not None and theirs is not None:
        return ours == theirs
    return zlib.crc32(found.data) == link.crc
