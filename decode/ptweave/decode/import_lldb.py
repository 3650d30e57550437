# SPDX-License-Identifier: MIT
"""LLDB trace bundles (`trace.json` and the files it names) as run bundles.

A bundle comes from another machine: only files below its folder are read, unless the user says that modules may be
taken from this machine. A module that is not there, or has another build id than the bundle says, is left out: what
ran in it becomes rows of `gaps`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ptweave.data.errors import BadInput
from ptweave.data.manifest import Clocks, Manifest
from ptweave.data.sideband import SidebandKind
from ptweave.decode.elf import BadElf
from ptweave.decode.importing import Folder, Import, Kept, open_given, read_small
from ptweave.decode.lldb_json import MAX_JSON, Conversion, CpuTrace, Description, Module, Process, parse

KERNEL_PID = 1
"""The process that stands for the kernel, as in LLDB; its threads are the processors."""

MAX_SWITCHES = 1 << 30
"""Bytes of one processor's context switches."""

_HEADER = struct.Struct("<IHH")  # struct perf_event_header: type, misc, size
_SWITCH = struct.Struct("<IIIIQ")  # next_prev_pid, next_prev_tid; sample_id: pid, tid, time
SWITCH_CPU_WIDE = 15  # PERF_RECORD_SWITCH_CPU_WIDE
SWITCH_OUT = 1 << 13  # PERF_RECORD_MISC_SWITCH_OUT


@dataclass(frozen=True)
class Switch:
    """A task goes onto a processor, or off it, at perf's time `ns`."""

    ns: int
    pid: int
    tid: int
    out: bool


def import_lldb(output: Path, description: Path, *, system_modules: bool = False) -> Import:
    """Make a bundle from a trace.json and the files beside it.

    `system_modules`: modules outside its folder may be read, where their build id is the one it names. Raises
    BadInput for a description that is malformed, and for traces that are not there or not below its folder.
    """
    content = parse(read_small(open_given(description), str(description), MAX_JSON), str(description))
    clocks = Clocks() if content.conversion is None else content.conversion.clocks()
    with Import(output, Manifest(cpu=content.cpu, clocks=clocks)) as run:
        importer = _Importer(run, Folder(description.parent), content, system_modules)
        if content.kernel is not None:
            importer.kernel(content.kernel)
        else:
            importer.processes()
    return run


class _Importer:
    def __init__(self, run: Import, folder: Folder, content: Description, system_modules: bool) -> None:
        self.run = run
        self.folder = folder
        self.content = content
        self.system_modules = system_modules

    def processes(self) -> None:
        threads: dict[tuple[int, int], int] = {}
        spaces: dict[int, int] = {}
        for process in self.content.processes:
            space = spaces[process.pid] = self._space(process)
            for thread in process.threads:
                number = self.run.thread(space, process.pid, thread.tid)
                threads.setdefault((process.pid, thread.tid), number)
                if thread.packets is not None:
                    self._trace(number, thread.packets, process.pid, space)
                elif not self.content.cpus:
                    self.run.lacks(f"the trace of thread {thread.tid}: {self.folder.path} does not name one")
        for cpu in self.content.cpus:
            self._cpu(cpu, spaces, threads)

    def kernel(self, kernel: Module) -> None:
        """The kernel alone was traced: a thread for each processor."""
        space = self._space(Process(KERNEL_PID, [], [kernel]))
        for cpu in self.content.cpus:
            number = self.run.thread(space, KERNEL_PID, cpu.number)
            self._trace(number, cpu.packets, KERNEL_PID, space)

    def _space(self, process: Process) -> int:
        path = process.modules[0].system_path if process.modules else None
        space = self.run.space(process.pid, path=path)
        for module in process.modules:
            self._module(space, process.pid, module)
        return space

    def _trace(self, number: int, name: str, pid: int, space: int) -> None:
        self.run.trace(number, self.folder.open(name), name, slices=[(0, pid, space, 0)])

    # --- modules ---

    def _module(self, space: int, pid: int, module: Module) -> None:
        try:
            kept = self._file(module)
            found = kept.build_id
            if module.uuid is not None and found is not None and found != module.uuid:
                raise BadInput(f"has build id {found}, not {module.uuid}")
            self.run.map_elf(space, pid, kept, module.address, module.system_path)
        except (BadInput, BadElf) as error:
            what = error.what if isinstance(error, BadInput) else str(error)
            self.run.lacks(f"the module {module.file or module.system_path} ({what})")
            # where it ended nobody says: what ran from its address on, up to the next module, is without code
            self.run.map(space, pid, module.address, self._room(pid, module.address), 0, None, module.system_path)

    def _room(self, pid: int, address: int) -> int:
        """Bytes from a module's address to the next module's, at most 4 GiB."""
        others = [module.address for process in self.content.processes if process.pid == pid
                  for module in process.modules if module.address > address]
        return min([*(other - address for other in others), 1 << 32, (1 << 64) - 1 - address])

    def _file(self, module: Module) -> Kept:
        name = module.file or module.system_path
        if not self.system_modules:
            return self.run.images.keep(self.folder.open(name), name)
        try:
            return self.run.images.keep(self.folder.open(name), name)
        except BadInput:
            if module.uuid is None or not Path(name).is_absolute():
                raise
        return self.run.images.keep(open_given(Path(name)), name)

    # --- processors ---

    def _cpu(self, cpu: CpuTrace, spaces: dict[int, int], threads: dict[tuple[int, int], int]) -> None:
        """Which thread a processor was on at what time: `switch` rows."""
        conversion = self.content.conversion
        if cpu.switches is None or conversion is None:
            raise BadInput(f"processor {cpu.number} has no contextSwitchTrace", where=str(self.folder.path),
                           remedy="give a bundle with context switches")
        self.run.cpu_trace(cpu.number, self.folder.open(cpu.packets), cpu.packets)
        data = read_small(self.folder.open(cpu.switches), cpu.switches, MAX_SWITCHES)
        running: tuple[int, int] | None = None
        first = True
        for switch in switches(data, cpu.switches):
            # idle and the tasks of processes nobody asked for are one
            task = (switch.pid, switch.tid) if switch.pid in spaces else None
            if first:  # what came before: the task that goes off, or nobody knows
                running = task if switch.out else None
                self._switch(cpu.number, 0, running, spaces, threads)
                first = False
            now = None if switch.out else task
            if now != running:
                self._switch(cpu.number, _tsc(conversion, switch), now, spaces, threads)
                running = now
        if first:
            self._switch(cpu.number, 0, None, spaces, threads)

    def _switch(self, cpu: int, tsc: int, task: tuple[int, int] | None, spaces: dict[int, int],
                threads: dict[tuple[int, int], int]) -> None:
        if task is None:
            self.run.row(SidebandKind.SWITCH, 0, 0, tsc=tsc, cpu=cpu)
            return
        pid, tid = task
        space = spaces[pid]
        if (pid, tid) not in threads:  # LLDB does not list threads that the switches name
            threads[pid, tid] = self.run.thread(space, pid, tid, tsc=tsc)
        self.run.row(SidebandKind.SWITCH, pid, space, tsc=tsc, cpu=cpu, tid=tid, thread=threads[pid, tid],
                     epoch=0)


def _tsc(conversion: Conversion, switch: Switch) -> int:
    return min(conversion.to_tsc(switch.ns), (1 << 64) - 1)


def switches(data: bytes, where: str) -> Iterator[Switch]:
    """The context switches in raw perf records (PERF_SAMPLE_TID, PERF_SAMPLE_TIME, sample_id_all).

    Other records are passed over. Raises BadInput for records that are cut or have impossible sizes.
    """
    at = 0
    while at + _HEADER.size <= len(data):
        kind, misc, size = _HEADER.unpack_from(data, at)
        if size < _HEADER.size or size % 8 or at + size > len(data):
            raise BadInput(f"has a record of impossible size at byte {at}", where=where,
                           remedy="save the trace bundle again")
        if kind == SWITCH_CPU_WIDE:
            if size < _HEADER.size + _SWITCH.size:
                raise BadInput(f"has a context switch without time or task at byte {at}", where=where,
                               remedy="save the trace bundle again")
            _, _, pid, tid, ns = _SWITCH.unpack_from(data, at + _HEADER.size)
            yield Switch(ns, min(pid, 0x7FFFFFFF), min(tid, 0x7FFFFFFF), bool(misc & SWITCH_OUT))
        at += size
    if at != len(data):
        raise BadInput(f"ends in the middle of a record at byte {at}", where=where,
                       remedy="save the trace bundle again")
