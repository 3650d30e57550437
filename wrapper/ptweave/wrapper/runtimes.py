# SPDX-License-Identifier: MIT
"""Where runtimes tell of their collections and references: OpenJDK's HotSpot, and CPython.

Both have markers (USDT) in builds that were configured with them, as Debian's and Temurin's are. HotSpot's causes come
from a function of its tracer, by its symbol, their names from the one that it names them with for its performance
counters and its log, before each collection; so do all collections of a CPython without markers.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from ptweave.data.errors import BadInput
from ptweave.wrapper.elf_places import Marker, Places
from ptweave.wrapper.filters import Kind
from ptweave.wrapper.uprobes import Probe, Source, Value

_TIME = "RK11TimeInstantI30CompositeCounterRepresentation29CompositeElapsedCounterSourceE"
_STARTS = (f"_ZN8GCTracer15report_gc_startEN7GCCause5CauseE{_TIME}",)
_STOPS = (f"_ZN8GCTracer13report_gc_endE{_TIME}P14TimePartitions",)
_NAMES = "_ZN7GCCause9to_stringENS_5CauseE"
_MARKERS = {("hotspot", "gc__begin"): ("hotspot begin", (0,)), ("hotspot", "gc__end"): ("hotspot end", ()),
            ("hotspot", "mem__pool__gc__begin"): ("hotspot pool begin", (5, 6)),
            ("hotspot", "mem__pool__gc__end"): ("hotspot pool end", (5, 6)),
            ("python", "gc__start"): ("python start", (0,)), ("python", "gc__done"): ("python done", (0,))}
"""Markers of collections: what their hits are called, and which arguments are told."""
_PYTHON_COLLECTS = "gc_collect_main"
"""CPython's function of a collection since 3.10 (Modules/gcmodule.c, Python/gc.c): its second argument is the
generation, its result how many objects were unreachable. What a compiler made of it (`.constprop.0`, …) may take other
arguments."""
_REFERENCES = {"NewLocalRef__return": ("add_local", 0), "DeleteLocalRef__entry": ("delete_local", 1),
               "NewGlobalRef__return": ("add_global", 0), "DeleteGlobalRef__entry": ("delete_global", 1),
               "NewWeakGlobalRef__return": ("add_weak", 0), "DeleteWeakGlobalRef__entry": ("delete_weak", 1)}
_GIVEN = "--runtime"


def _values(marker: Marker, which: Sequence[int]) -> tuple[Value, ...]:
    found = []
    for at in which:
        if at >= len(marker.arguments):
            return ()
        one = marker.arguments[at]
        source = Source.MEMORY if one.memory else Source.REGISTER if one.register else Source.CONSTANT
        found.append(Value(str(at), source, one.register or "ax", one.offset, one.size, one.signed))
    return tuple(found)


def collections(places: Places) -> list[Probe]:
    """The probes of a runtime's collections; empty for a file that has none."""
    found = []
    for marker in places.markers:
        name, which = _MARKERS.get((marker.provider, marker.name), ("", ()))
        values = _values(marker, which)
        if name and len(values) == len(which):
            found.append(Probe(Kind.GARBAGE_COLLECT, name, places.path, marker.offset, values,
                               semaphore=marker.semaphore))
    for name, symbols, values in (("hotspot start", _STARTS, (Value("cause", Source.REGISTER, "si", size=4),)),
                                  ("hotspot stop", _STOPS, ())):
        for symbol in symbols:
            offset = places.find(symbol)
            if offset is not None:
                found.append(Probe(Kind.GARBAGE_COLLECT, name, places.path, offset, values))
    found += _of_cause_names(places)
    if not any(probe.name == "python start" for probe in found):
        found += _of_python_s_function(places)
    return found


def _of_cause_names(places: Places) -> list[Probe]:
    """Where HotSpot asks for the name of a cause, and gets it."""
    offset = places.find(_NAMES)
    if offset is None:
        return []
    return [Probe(Kind.GARBAGE_COLLECT, "hotspot cause", places.path, offset,
                  (Value("cause", Source.REGISTER, "di", size=4),)),
            Probe(Kind.GARBAGE_COLLECT, "hotspot named", places.path, offset,
                  (Value("name", Source.STRING, "ax"),), at_return=True)]


def _of_python_s_function(places: Places) -> list[Probe]:
    """Where a CPython without markers begins and ends a collection; empty when it has no symbol of that."""
    for symbol in places.named(_PYTHON_COLLECTS):
        offset = places.find(symbol)
        if offset is None:
            continue
        generation = (Value("generation", Source.REGISTER, "si", size=4, signed=True),)
        return [Probe(Kind.GARBAGE_COLLECT, "python start", places.path, offset,
                      generation if symbol == _PYTHON_COLLECTS else ()),
                Probe(Kind.GARBAGE_COLLECT, "python done", places.path, offset,
                      (Value("freed", Source.REGISTER, "ax", signed=True),), at_return=True)]
    return []


def references(places: Places) -> list[Probe]:
    """The probes of JNI's references; empty for a file that has none."""
    found = []
    for marker in places.markers:
        name, which = _REFERENCES.get(marker.name, ("", 0)) if marker.provider == "hotspot_jni" else ("", 0)
        values = _values(marker, (which,))
        if name and values:
            found.append(Probe(Kind.JNI_REFERENCE, name, places.path, marker.offset, values,
                               semaphore=marker.semaphore))
    return found


def _of_command(words: Sequence[str]) -> list[Path]:
    """What a command may run: itself, the JVM or the library of Python beside it."""
    program = shutil.which(words[0]) if words else None
    if program is None:
        return []
    path = Path(program).resolve()
    home = path.parent.parent
    return [path, home / "lib/server/libjvm.so", *home.glob("lib/libpython3*.so.*")]


def _installed() -> list[Path]:
    """Runtimes where they are usually found."""
    found = [*Path("/usr/lib/jvm").glob("*/lib/server/libjvm.so"), *Path("/usr/bin").glob("python3*")]
    home = os.environ.get("JAVA_HOME")
    if home:
        found.append(Path(home) / "lib/server/libjvm.so")
    return found + _of_command(["java"]) + _of_command(["python3"])


def _of_process(pid: int) -> list[Path]:
    """Files that a process has mapped and whose names look like a runtime's."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    names = {line.split(maxsplit=5)[5] for line in lines if line.count("/") and len(line.split(maxsplit=5)) == 6}
    return [Path(name) for name in names if "libjvm" in name or "python" in Path(name).name]


def find(kinds: frozenset[Kind], words: Sequence[str], pids: Sequence[int], given: Sequence[Path]) -> tuple[Probe, ...]:
    """Probes for these kinds: in files that are given, that the command or the processes use, that are installed.

    Raises BadInput for a given file that is no runtime, and when there is none at all.
    """
    wanted = [make for kind, make in ((Kind.GARBAGE_COLLECT, collections), (Kind.JNI_REFERENCE, references))
              if kind in kinds]
    if not wanted:
        return ()
    paths = [*given, *_of_command(words), *(path for pid in pids for path in _of_process(pid)), *_installed()]
    found: list[Probe] = []
    seen: set[tuple[int, int]] = set()
    for path in paths:
        try:
            status = path.stat()
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            probes = [probe for make in wanted for probe in make(Places.of(str(path.resolve())))]
        except (BadInput, OSError) as error:
            if path in given:
                raise BadInput("is no runtime that can be read", where=f"{_GIVEN} {path}",
                               remedy="give a libjvm.so, a python or a libpython") from error
            continue
        if not probes and path in given:
            raise BadInput("has no markers of collections or references", where=f"{_GIVEN} {path}",
                           remedy="use a build with them (--enable-dtrace, --with-dtrace)")
        found += probes
    if not found:
        raise BadInput("no Java or Python is here that tells of its collections", where="--kinds",
                       remedy=f"name one with {_GIVEN}")
    return tuple(found)


__all__ = ["collections", "find", "references"]
