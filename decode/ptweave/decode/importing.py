# SPDX-License-Identifier: MIT
"""A run bundle made from somebody else's recording: what every importer needs, in one place.

    with Import(path, Manifest(cpu=…, clocks=…)) as run:
        space = run.space(pid)
        thread = run.thread(space, pid, tid)
        kept = run.images.keep(open_given(file))
        run.map(space, pid, addr, size, offset, kept, path)
        run.trace(thread, open_given(trace), slices=[(0, space, 0)])

The bundle is there, complete, when the block ends, and is removed when it ends with an error.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput, MachineLacks
from ptweave.data.ledger import Ledger
from ptweave.data.manifest import Manifest, State
from ptweave.data.perf.packets import PSB
from ptweave.data.sideband import SidebandKind, write_sideband
from ptweave.decode.elf import PT_LOAD, BadElf, Elf, Segment

MAX_IMAGE = 4 << 30
"""Bytes of a file of code; no linker makes larger ones."""

MAX_TRACE = 1 << 40
"""Bytes of one trace."""

CHUNK = 1 << 20
ET_REL, ET_EXEC, ET_CORE = 1, 2, 4
ADDRESSES = 1 << 64


# --- opening ------------------------------------------------------------------------------------------------------


def open_given(path: Path) -> int:
    """Open a regular file the user named; returns a descriptor the caller closes. Raises BadInput."""
    return _opened(str(path), None, str(path), links=True)


class Folder:
    """Files below one folder, named by somebody we do not trust: no name and no symbolic link leads out of it."""

    def __init__(self, path: Path) -> None:
        """Raises BadInput when there is no such folder."""
        self.path = path
        try:
            self._real = path.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise BadInput("cannot be read", where=str(path), remedy="name a folder that can be read") from error

    def open(self, name: str) -> int:
        """Open the regular file `name` (relative, or absolute and below the folder). Raises BadInput.

        Links are followed once, to see where the file is; then every step is taken without following any.
        """
        where = str(self.path / name)
        try:
            inside = (self._real / name).resolve(strict=True).relative_to(self._real)
        except FileNotFoundError as error:
            raise BadInput("does not exist", where=where, remedy="put the file there") from error
        except (ValueError, OSError, RuntimeError) as error:  # NUL in the name, outside, a circle of links
            raise BadInput("is not below the folder of the file that names it", where=where,
                           remedy="copy it into that folder") from error
        folder = os.open(self._real, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in inside.parts[:-1]:
                try:
                    deeper = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                except OSError as error:
                    raise BadInput(f"cannot be read ({error.strerror})", where=where,
                                   remedy="give access") from error
                os.close(folder)
                folder = deeper
            return _opened(inside.name or ".", folder, where, links=False)
        finally:
            os.close(folder)


def _opened(name: str, folder: int | None, where: str, *, links: bool) -> int:
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise BadInput(f"cannot be read ({getattr(error, 'strerror', None) or error})", where=where,
                       remedy="name a file that can be read") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BadInput("is not a file", where=where, remedy="name a regular file")
    return descriptor


def read_small(descriptor: int, where: str, limit: int) -> bytes:
    """All of a file; closes it. Raises BadInput beyond `limit` bytes."""
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise BadInput(f"is larger than {limit} bytes", where=where, remedy="give the file that was meant")
    return data


# --- images -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kept:
    """A file in the bundle's images/. `elf` is None for one that is no ELF file, or a malformed one."""

    name: str
    size: int
    elf: Elf | None

    @property
    def build_id(self) -> str | None:
        return None if self.elf is None else self.elf.build_id


@dataclass(frozen=True)
class Load:
    """A stretch of a file at an address."""

    address: int
    offset: int
    size: int


def loads(elf: Elf, base: int | None) -> list[Load]:
    """Where an ELF file's loaded bytes lie when its lowest one is at `base`; None: where it was linked to be.

    Raises BadElf for a file without anything to load, one that is not at home anywhere (no base given), or one that
    would end beyond the last address.
    """
    segments = [segment for segment in elf.segments if segment.type == PT_LOAD and segment.size]
    if not segments:
        raise BadElf("nothing to load in it")
    if base is None and elf.type not in (ET_EXEC, ET_CORE):
        raise BadElf("it can be loaded anywhere: it needs an address")
    slide = 0 if base is None else base - min(segment.address for segment in segments)
    if base is not None and max(segment.address + slide + segment.size for segment in segments) > ADDRESSES:
        raise BadElf("it would end beyond the last address")
    return [_load(segment, slide, len(elf.data)) for segment in segments]


def _load(segment: Segment, slide: int, size: int) -> Load:
    if segment.offset + segment.size > size:
        raise BadElf("a segment lies outside the file")
    return Load((segment.address + slide) % ADDRESSES, segment.offset, segment.size)


class Images:
    """The images/ folder of a bundle being made. Each file is there once, by build id, else by sha256."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: dict[str, Kept] = {}  # by digest
        self._seen: dict[tuple[int, int, int, int], Kept] = {}

    def keep(self, descriptor: int, where: str = "") -> Kept:
        """Copy an open file (and close it). Raises BadInput beyond MAX_IMAGE."""
        partial = self._folder / ".partial"
        digest = hashlib.sha256()
        size = 0
        status = os.fstat(descriptor)
        identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if identity in self._seen:  # many may name the same file
            os.close(descriptor)
            return self._seen[identity]
        try:
            with os.fdopen(descriptor, "rb") as source, partial.open("wb") as sink:
                while chunk := source.read(CHUNK):
                    size += len(chunk)
                    if size > MAX_IMAGE:
                        raise BadInput(f"is larger than {MAX_IMAGE} bytes", where=where,
                                       remedy="give the file of code that ran")
                    digest.update(chunk)
                    sink.write(chunk)
            kept = self._seen[identity] = self._settle(partial, digest.hexdigest(), size)
            return kept
        finally:
            partial.unlink(missing_ok=True)

    def keep_bytes(self, data: bytes) -> Kept:
        """Keep code that is in no file."""
        partial = self._folder / ".partial"
        partial.write_bytes(data)
        return self._settle(partial, hashlib.sha256(data).hexdigest(), len(data))

    def _settle(self, partial: Path, digest: str, size: int) -> Kept:
        known = self._kept.get(digest)
        if known is not None:
            partial.unlink()
            return known
        try:
            elf: Elf | None = Elf.open(partial)
        except BadElf:
            elf = None
        name = (elf.build_id if elf is not None else None) or digest
        if (self._folder / name).exists():  # another file claims the same build id
            name = digest
        partial.replace(self._folder / name)
        kept = self._kept[digest] = Kept(name, size, elf)
        return kept


# --- the bundle ---------------------------------------------------------------------------------------------------


class Import:
    """A bundle being made. Rows are written in the order in which they were added."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        """Make the folder. Raises BadInput when it exists, MachineLacks when it cannot be made."""
        manifest.engine = manifest.engine or "intel_pt"
        self.bundle = Bundle.create(path, manifest)
        self.images = Images(self.bundle.images)
        self.ledger = Ledger()
        self.rows: list[dict[str, object]] = []
        self._spaces = 0
        self._threads = 0

    def row(self, kind: SidebandKind, pid: int, space: int, *, tsc: int = 0, **columns: object) -> None:
        """Add a row of the sideband (`ptweave.data.sideband` says which columns a kind has)."""
        self.rows.append({"kind": kind, "tsc": tsc, "pid": pid, "space": space, **columns})

    def space(self, pid: int, *, path: str | None = None, parent: int = 0, tsc: int = 0,
              began_by: str = "start") -> int:
        """A new address space of a process; returns its number."""
        number = self._spaces
        self._spaces += 1
        self.row(SidebandKind.PROCESS, pid, number, tsc=tsc, tid=pid, path=path, value=parent, detail=began_by)
        return number

    def thread(self, space: int, pid: int, tid: int, *, parent: int = 0, tsc: int = 0) -> int:
        """A new thread; returns its number. `parent` is its creator's tid, 0 unknown."""
        number = self._threads
        self._threads += 1
        self.row(SidebandKind.THREAD, pid, space, tsc=tsc, tid=tid, thread=number, value=parent)
        return number

    def map(self, space: int, pid: int, addr: int, size: int, offset: int, kept: Kept | None, path: str | None, *,
            epoch: int = 0, tsc: int = 0) -> None:
        """A mapping; `kept` None: the code could not be had."""
        self.row(SidebandKind.MAP, pid, space, tsc=tsc, addr=addr, size=size, offset=offset, epoch=epoch,
                 image=None if kept is None else kept.name, path=path)

    def map_elf(self, space: int, pid: int, kept: Kept, base: int | None, path: str | None, *, epoch: int = 0,
                tsc: int = 0) -> None:
        """Map an ELF file by its segments, as `loads` says. Raises BadElf, for a file that is none too."""
        if kept.elf is None:
            raise BadElf("no ELF file, or a malformed one")
        for load in loads(kept.elf, base):
            self.map(space, pid, load.address, load.size, load.offset, kept, path, epoch=epoch, tsc=tsc)

    def trace(self, thread: int, descriptor: int, where: str = "", *,
              slices: Iterable[tuple[int, int, int, int]] = ()) -> bool:
        """Copy an open file (and close it) as a thread's trace; `slices` are (offset, pid, space, epoch). Returns
        whether there is a PSB in it: nothing can be decoded before the first."""
        synchronised = self._copy(descriptor, self.bundle.trace / f"{thread}.pt", f"trace/{thread}", where)
        for offset, pid, space, epoch in slices:
            self.row(SidebandKind.SLICE, pid, space, thread=thread, offset=offset, epoch=epoch)
        return synchronised

    def cpu_trace(self, cpu: int, descriptor: int, where: str = "") -> None:
        """Copy an open file (and close it) as the trace of a processor; `switch` rows say whose it is when."""
        self._copy(descriptor, self.bundle.trace / f"cpu-{cpu}.pt", f"trace/cpu-{cpu}", where)

    def _copy(self, descriptor: int, target: Path, stream: str, where: str) -> bool:
        size, found, end = 0, False, b""
        with os.fdopen(descriptor, "rb") as source, target.open("xb") as sink:
            while chunk := source.read(CHUNK):
                size += len(chunk)
                if size > MAX_TRACE:
                    raise BadInput(f"is larger than {MAX_TRACE} bytes", where=where, remedy="cut it into parts")
                sink.write(chunk)
                if not found:
                    joined = end + chunk
                    found, end = PSB in joined, joined[1 - len(PSB):]
        self.ledger.add(stream, "bytes", stored=size)
        return found

    def lacks(self, what: str) -> None:
        """Say in words what the recording does not have."""
        if what not in self.bundle.manifest.lacks:
            self.bundle.manifest.lacks.append(what)

    def __enter__(self) -> Import:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if kind is not None:
            shutil.rmtree(self.bundle.path, ignore_errors=True)
            if isinstance(error, OSError):
                raise MachineLacks(f"cannot be written ({error.strerror or error})", where=str(self.bundle.path),
                                   remedy="make room, or choose another place with -o") from error
            return
        write_sideband(self.bundle.sideband, self.rows)
        self.bundle.save_ledger(self.ledger)
        self.bundle.manifest.state = State.COMPLETE
        self.bundle.save_manifest()
