# SPDX-License-Identifier: MIT
"""What libtthread met that it cannot carry, said once a run: by symbol where there is one, with what to do."""

from __future__ import annotations

import functools
import os
import signal
import stat
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from numpy.typing import NDArray

from ptweave.data.notices import Notice, NoticeKind
from ptweave.wrapper.threads import View

SHOWN = 4
"""Lines of one kind on the terminal; the manifest has them all."""
NATIVE = "use --threads native"
PASS_THROUGH = "name it to --shared, or use --threads native"

REMEDIES = {
    NoticeKind.FALLBACK: "nothing to do: the run goes on as with --threads native",
    NoticeKind.ATOMIC: "nothing to do for counters (--shared names such memory from the start); data that "
                       "atomics alone order, as Rust's locks do, need --view shared",
    NoticeKind.FUTEX: PASS_THROUGH,
    NoticeKind.CALL: NATIVE,
    NoticeKind.CLONE: NATIVE,
    NoticeKind.IO_URING: NATIVE,
    NoticeKind.TRACER: NATIVE,
    NoticeKind.FAULTS: NATIVE,
    NoticeKind.LIMIT: NATIVE,
    NoticeKind.SHARED: "check its spelling with nm, or give an address",
    NoticeKind.PROBE: "the program is as it would be without the probe",
    NoticeKind.SCOPE: "where one then finds a function that it was not to find, link it with -Wl,-Bsymbolic",
    NoticeKind.WATCH: "the program runs as it would without it; see docs/watchpoints.md",
}
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGABRT)
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
"""What ends a program that hangs."""
_Where = tuple[str, int]
"""A file and an address in it; without a file ("") an address of the process."""


class Notices:
    """All notices of a run, each (kind, place) once. `say` gets a line for the first few of each kind."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._known: dict[tuple[NoticeKind, _Where], Notice] = {}
        self._shown: Counter[NoticeKind] = Counter()

    @property
    def all(self) -> list[Notice]:
        return list(self._known.values())

    def take(self, pid: int, entries: Sequence[np.void]) -> None:
        """Notices (NOTICE_DTYPE) from a process. They are the target's words: nothing in them is believed."""
        for entry in entries:
            kind = NoticeKind.of(int(entry["kind"]))
            if kind is None:
                continue
            code, about = _place(pid, entry["code"]), _place(pid, entry["object"])
            self.add(Notice(kind, _text(entry["text"]), _name(code), _name(about), REMEDIES[kind], pid),
                     code if code[1] else (f"{_text(entry['text'])} {about[0]}", about[1]))

    def add(self, notice: Notice, place: _Where = ("", 0)) -> None:
        """One notice; said once for each kind and place of a run."""
        before = self._known.get((notice.kind, place))
        if before is not None:
            self._known[notice.kind, place] = replace(before, times=before.times + 1)
            return
        self._known[notice.kind, place] = notice
        self._shown[notice.kind] += 1
        if self._shown[notice.kind] <= SHOWN:
            self._say(notice.line())
        elif self._shown[notice.kind] == SHOWN + 1:
            self._say(f"more notices of this kind ({notice.kind.value}) are in run.json")


def explain_crash(notices: Notices, view: str, status: int) -> None:
    """Where a program crashed, or was ended, (a wait status) that the private view may have misled, say so."""
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if view != View.PRIVATE or number not in (*_CRASHES, *_STOPS):
        return
    if any(notice.kind is NoticeKind.ATOMIC for notice in notices.all):
        hung = ", perhaps since it hung" if number in _STOPS else ""
        notices.add(Notice(NoticeKind.LIMIT, f"killed by {signal.Signals(number).name}{hung}, and it has atomics: the "
                           "private view does not follow what they alone order", remedy="record it with --view shared"))


def _text(raw: bytes) -> str:
    """Text of the target's that cannot steer a terminal."""
    return "".join(char if char.isprintable() else "?" for char in raw.decode(errors="replace"))


def _place(pid: int, place: np.void) -> _Where:
    if not int(place["known"]):
        return "", int(place["address"])
    path = os.fsdecode(bytes(place["path"]))
    if not path.startswith("/"):
        try:
            path = os.path.normpath(Path(f"/proc/{pid}/cwd").readlink() / path)
        except OSError:
            return path, int(place["offset"])
    return path, int(place["offset"])


def _name(place: _Where) -> str:
    """`symbol+0x12 (file)`, `file+0x1234`, an address, or ""."""
    path, address = place
    if not path:
        return hex(address) if address else ""
    file = _text(os.fsencode(Path(path).name))
    symbol = symbol_at(Path(path), address)
    return f"{file}+{address:#x}" if symbol is None else f"{symbol} ({file})"


def symbol_at(path: Path, address: int) -> str | None:
    """The symbol that covers an address of a file, with the distance from its start; None when none does."""
    for symbols in _tables(path):
        inside = (symbols.start <= address) & (address < symbols.start + symbols.size)
        for index in np.flatnonzero(inside):
            name, start = symbols.name(int(index)), int(symbols.start[index])
            return name if address == start else f"{name}+{address - start:#x}"
    return None


_SYMBOL = np.dtype([("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"),
                    ("size", "<u8")])
_NAMED = (1, 2, 10)  # STT_OBJECT, STT_FUNC, STT_GNU_IFUNC


@dataclass
class _Symbols:
    """One symbol table's functions and data."""

    start: NDArray[np.uint64]
    size: NDArray[np.uint64]
    names: NDArray[np.uint32]
    strings: bytes

    def name(self, index: int) -> str:
        at = int(self.names[index])
        return _text(self.strings[at:self.strings.find(b"\0", at)])


@functools.lru_cache(maxsize=8)
def _tables(path: Path) -> list[_Symbols]:
    """.symtab and .dynsym; none for a file that cannot be read: the address says it then."""
    found: list[_Symbols] = []
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return found
            elf = ELFFile(file)
            for section in (elf.get_section_by_name(".symtab"), elf.get_section_by_name(".dynsym")):
                if isinstance(section, SymbolTableSection):
                    data = section.data()
                    symbols = np.frombuffer(data, _SYMBOL, len(data) // _SYMBOL.itemsize)
                    symbols = symbols[np.isin(symbols["info"] & 15, _NAMED) & (symbols["section"] != 0)]
                    found.append(_Symbols(symbols["value"], symbols["size"], symbols["name"],
                                          elf.get_section(section["sh_link"]).data()))
    except (OSError, ELFError, ValueError, KeyError, TypeError, AssertionError, OverflowError, MemoryError):
        return found
    return found
