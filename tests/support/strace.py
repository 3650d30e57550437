# SPDX-License-Identifier: MIT
"""Reads what `strace -f -o FILE` wrote: the independent witness of a program's system calls."""

from __future__ import annotations

import mmap
import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ptweave.preload import library_path

_LINE = re.compile(r"^(\d+)\s+(.*)$")
_CALL = re.compile(r"^(\w+)\((.*)$")
_RESUMED = re.compile(r"^<\.\.\. (\w+) resumed>(.*)$")
_RESULT = re.compile(r"\)\s+= (\?|-?\d+|0x[0-9a-f]+)(?=<|\s|$)\s*(.*)$")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
_UNFINISHED = " <unfinished ...>"
ANONYMOUS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


@dataclass
class Call:
    """One call: raw arguments (with -e raw=all) or the strings among them (with -xx); None for no result."""

    tid: int
    name: str
    text: str
    result: int | None
    note: str

    @property
    def raw_args(self) -> list[int]:
        return [int(word, 16) & (2**64 - 1) for word in self.text.split(", ") if word]

    @property
    def strings(self) -> list[bytes]:
        return [bytes.fromhex(found[0].replace("\\x", "")) for found in _STRING.findall(self.text)]

    @property
    def restarted(self) -> int | None:
        """The number of the ERESTART… it ended with; None for another end."""
        found = re.search(r"ERESTART\w+|errno (51[2-6])", self.note)
        if found is None:
            return None
        names = {"ERESTARTSYS": 512, "ERESTARTNOINTR": 513, "ERESTARTNOHAND": 514, "ERESTART_RESTARTBLOCK": 516}
        return int(found[1]) if found[1] else names[found[0]]

    @property
    def errno_name(self) -> str | None:
        found = re.match(r"(E[A-Z0-9]+)\b", self.note)
        return found[1] if found else None


def parse(path: Path) -> list[Call]:
    """The calls in the order in which they ended; those that never did at the end of their tid's life."""
    calls: list[Call] = []
    open_calls: dict[int, tuple[str, str]] = {}
    superseded: dict[int, int] = {}
    for line in path.read_text(errors="surrogateescape").splitlines():
        found = _LINE.match(line)
        assert found is not None, line
        tid, rest = int(found[1]), found[2]
        if rest.startswith("+++ superseded by execve in pid "):
            superseded[tid] = int(rest.split()[6])
            continue
        if rest.startswith(("+++", "---")):
            if rest.startswith("+++") and tid in open_calls:
                name, text = open_calls.pop(tid)
                calls.append(Call(tid, name, text, None, ""))
            continue
        caller = tid
        if resumed := _RESUMED.match(rest):
            caller = superseded.pop(tid, tid) if tid not in open_calls else tid
            name, text = open_calls.pop(caller)
            rest = text + resumed[2]
        else:
            begun = _CALL.match(rest)
            assert begun is not None, line
            name, rest = begun[1], begun[2]
            if rest.endswith(_UNFINISHED):
                open_calls[tid] = (name, rest.removesuffix(_UNFINISHED))
                continue
        ended = _RESULT.search(rest)
        assert ended is not None, line
        text, word, note = rest[:ended.start()], ended[1], ended[2] or ""
        result = None if word == "?" else int(word, 16) if word.startswith("0x") else int(word)
        calls.append(Call(caller, name, text, result, note))
    return calls


def counted(argv: Sequence[str | Path], folder: Path) -> Counter[str]:
    """Counts by name from `strace -f -c` of a native run. libtthread is preloaded, and does nothing without a
    supervisor: so loading it is counted as it is in a recording."""
    summary = folder / "summary"
    subprocess.run(["strace", "-f", "-c", "-U", "name,calls", "-o", summary, "-E", f"LD_PRELOAD={library_path()}",
                    *argv], check=True, capture_output=True)
    counts: Counter[str] = Counter()
    for line in summary.read_text().splitlines():
        found = re.fullmatch(r"\s*([a-z]\w*)\s+(\d+)\s*", line)
        if found and found.group(1) not in ("total", "calls"):
            counts[found.group(1)] += int(found.group(2))
    return counts


LOADER_ENDS = "arch_prctl"
"""What the loader calls once its thread-local memory is there, which is the last that it takes for itself."""


def loader_blocks(argv: Sequence[str | Path], folder: Path) -> int:
    """How often the loader took memory for itself in the same run: as its blocks come to fill pages, which depends on
    the lengths of paths and of the environment."""
    log = folder / "loader"
    subprocess.run(["strace", "-f", "-o", log, "-e", f"mmap,{LOADER_ENDS}", "-e", "raw=mmap",
                    "-E", f"LD_PRELOAD={library_path()}", *argv], check=True, capture_output=True)
    calls = parse(log)
    end = next(at for at, call in enumerate(calls) if call.name == LOADER_ENDS)
    return sum(call.raw_args[0] == 0 and call.raw_args[3] == ANONYMOUS for call in calls[:end])
