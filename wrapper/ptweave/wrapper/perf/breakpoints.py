# SPDX-License-Identifier: MIT
"""Hardware execution breakpoints through perf: a thread that comes to a symbol leaves a record in its ring of records.

The thread is not stopped. A place is watched in every thread that is traced, at the address where the thread's process
maps its file, until it is reached first. A thread has four such registers (SDM vol. 3, 18.2), which debuggers use too.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from ptweave.data import BadInput, MachineLacks
from ptweave.data.perf.format import RecordType, SampleType
from ptweave.data.perf.records import Mmap
from ptweave.wrapper.perf.abi import HW_BREAKPOINT_X, PERF_TYPE_BREAKPOINT, PerfEventAttr
from ptweave.wrapper.perf.event import Event
from ptweave.wrapper.perf.filters import NoSymbol, function_place
from ptweave.wrapper.perf.synthesis import TRAILER

PLACES_MAX = 4
_LONG = 8
_HEADER = struct.Struct("<IHH")
_ADDRESS = struct.Struct("<Q")  # first in a sample with SampleType.IP


@dataclass(frozen=True)
class Place:
    """A function's first byte: `offset` in the file `path`, which is absolute and no link; `fixed` is its address where
    the file says one itself (a program that is not position-independent), else 0."""

    name: str
    path: str
    offset: int
    fixed: int = 0


def parse_places(texts: Sequence[str], program: str | None) -> tuple[Place, ...]:
    """SYMBOL[@FILE] as the user wrote them; without a file it is `program`. Raises BadInput."""
    if len(texts) > PLACES_MAX:
        raise BadInput(f"a thread has no more than {PLACES_MAX} breakpoints", where="--snapshot-at",
                       remedy="name fewer functions")
    return tuple(_parse(text, program) for text in texts)


def _parse(text: str, program: str | None) -> Place:
    symbol, at, file = (word.strip() for word in text.partition("@"))
    where = f"--snapshot-at {text!r}"
    name = file if at else shutil.which(program or "") or program or ""
    if not symbol or not name:
        raise BadInput("is not SYMBOL or SYMBOL@FILE", where=where,
                       remedy="as in: --snapshot-at 'failed@./libx.so'")
    path = Path(name)
    try:
        real = path.resolve(strict=True)
        with real.open("rb") as opened:
            elf = ELFFile(opened)
            offset, _, address = function_place(elf, symbol)
            return Place(symbol, str(real), offset, address if elf["e_type"] == "ET_EXEC" else 0)
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", where=name,
                       remedy="name the file the program maps") from error
    except NoSymbol as error:
        raise BadInput(str(error.args[0]), where=where, remedy="nm FILE lists its functions") from error
    except (ELFError, ValueError, LookupError, TypeError, AssertionError) as error:
        raise BadInput(f"is no ELF file that can be read ({error})", where=name,
                       remedy="name a program or a library") from error


@dataclass(frozen=True)
class Watched:
    """A thread's event, whose ring takes the records; `cpu` −1, or a CPU's, and what is watched is inherited there."""

    event: Event
    pid: int
    tid: int
    cpu: int = -1


class Breakpoints:
    """The places that were not reached yet, in all threads."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = list(places)
        self._addresses: dict[int, dict[Place, int]] = {}  # by pid
        self._set: dict[tuple[int, int, Place], tuple[int, int]] = {}  # (tid, cpu, place) → address, descriptor
        self.refused: list[str] = []
        """Places that could not be watched somewhere, and why."""

    @property
    def any(self) -> bool:
        """Whether there is a place left to watch."""
        return bool(self._places)

    def mapped(self, mapping: Mmap) -> None:
        """A process has mapped code."""
        for place in self._places:
            if mapping.path == place.path and 0 <= place.offset - mapping.offset < mapping.size:
                address = mapping.start + place.offset - mapping.offset
                self._addresses.setdefault(mapping.pid, {})[place] = address

    def execed(self, pid: int) -> None:
        """A process runs another program: nothing is mapped where it was."""
        self._addresses.pop(pid, None)

    def watch(self, threads: Sequence[Watched]) -> None:
        """Have the breakpoints where they belong, in these threads and in no others."""
        wanted = {(one.tid, one.cpu, place): (address, one) for one in threads
                  for place, address in self._where(one).items()}
        for key in [key for key, (address, _) in self._set.items() if wanted.get(key, (0, None))[0] != address]:
            os.close(self._set.pop(key)[1])
        for key, (address, one) in wanted.items():
            if key not in self._set:
                self._open(key, address, one)

    def _where(self, one: Watched) -> dict[Place, int]:
        fixed = {place: place.fixed for place in self._places if place.fixed and one.cpu >= 0}
        return fixed | self._addresses.get(one.pid, {})

    def _open(self, key: tuple[int, int, Place], address: int, one: Watched) -> None:
        place = key[2]
        attr = PerfEventAttr()
        attr.type, attr.bp_type, attr.config1, attr.config2 = PERF_TYPE_BREAKPOINT, HW_BREAKPOINT_X, address, _LONG
        attr.sample_period = attr.wakeup_events = attr.sample_id_all = attr.exclude_kernel = attr.exclude_hv = 1
        attr.sample_type = SampleType.IP | TRAILER
        attr.inherit = one.cpu >= 0
        if place.fixed and one.pid not in self._addresses:
            attr.disabled = attr.enable_on_exec = 1  # what the process runs yet has something else there
        try:
            self._set[key] = (address, one.event.share(attr, one.tid, one.cpu))
        except MachineLacks as error:
            line = f"--snapshot-at {place.name}: not watched in thread {one.tid}: {error.line()}"
            self._set[key] = (address, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))  # not tried again
            self.refused.append(line)

    def hits(self, data: bytes) -> list[str]:
        """The places that records in `data` say were reached, by name: each for the first time. They are no longer
        watched."""
        found = []
        for address in _samples(data):
            for place in [place for place in self._places if place.fixed == address or any(
                    known.get(place) == address for known in self._addresses.values())]:
                self._places.remove(place)
                self._forget(place)
                found.append(place.name)
        return found

    def _forget(self, place: Place) -> None:
        for addresses in self._addresses.values():
            addresses.pop(place, None)
        for key in [key for key in self._set if key[2] == place]:
            os.close(self._set.pop(key)[1])

    def close(self) -> None:
        """Idempotent."""
        for _, descriptor in self._set.values():
            os.close(descriptor)
        self._set.clear()
        self._places.clear()


def _samples(data: bytes) -> Iterator[int]:
    """The address of each sample."""
    at = 0
    while at + _HEADER.size <= len(data):
        kind, _, size = _HEADER.unpack_from(data, at)
        if size < _HEADER.size or at + size > len(data):
            return
        if kind == RecordType.SAMPLE and size >= _HEADER.size + _ADDRESS.size:
            yield int(_ADDRESS.unpack_from(data, at + _HEADER.size)[0])
        at += size
