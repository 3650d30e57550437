# SPDX-License-Identifier: MIT
"""A run as perf has it: a folder with `perf.data`, and `symfs/` with the code that ran (for perf's --symfs).

perf knows a process by its maps as records replay them in time. The packets' times are coarser than those of the
maps, so all maps of a program that are in nobody's way are there from its beginning; one that takes another's place
comes at its own time. A trace is one task's for perf: where a thread goes on as a process, that is there from the
thread's beginning. What perf has no place for is said, not dropped silently.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ptweave.data.bundle import Bundle
from ptweave.data.manifest import FilterKind
from ptweave.data.perf.writer import Machine, Moment, PerfWriter, symbolic_filters
from ptweave.data.sideband import SidebandKind, SwitchWhen, read_sideband
from ptweave.decode.export_lldb import conversion_of
from ptweave.decode.exported import Exported, new_folder
from ptweave.decode.images import Code
from ptweave.decode.lldb_json import Conversion
from ptweave.decode.plan import Thread, plan

DATA, SYMFS = "perf.data", "symfs"
Row = dict[str, Any]


def export_perf(bundle: Bundle, output: Path) -> Exported:
    """Write `bundle` into the new folder `output`.

    Raises BadInput when the folder exists or the run's traces cannot be read, MachineLacks when it cannot be written.
    """
    with new_folder(output):
        return _Exporter(bundle, output).run()


class _Exporter:
    def __init__(self, bundle: Bundle, output: Path) -> None:
        self.bundle = bundle
        self.output = output
        self.exported = Exported(output)
        self.sideband = read_sideband(bundle.sideband)
        self.rows: list[Row] = self.sideband.to_pylist()
        self.code = Code(self.sideband, bundle.images)
        self.threads = plan(bundle, self.sideband)
        self.by_cpu = any(thread.of_cpu for thread in self.threads)
        conversion = conversion_of(bundle.manifest.clocks)
        if conversion is None:
            self.exported.lack("nanoseconds: the run does not say how long a tick is, and a tick is shown as one")
        self.conversion = conversion or Conversion(1, 0, 0)
        self.writer = PerfWriter(self._machine())
        self.names: dict[str, str] = {}  # image and path → path in symfs
        self.begins = beginnings(self.rows)

    def run(self) -> Exported:
        for row in self.rows:
            self._record(row)
        self._maps()
        self._switches()
        for thread in self.threads:
            self._trace(thread)
        with (self.output / DATA).open("xb") as out:
            self.writer.write(out)
        return self.exported

    # --- what the file says of itself ---

    def _machine(self) -> Machine:
        manifest, conversion = self.bundle.manifest, self.conversion
        cpu = manifest.cpu
        intel = manifest.engine == "intel_pt" and cpu.vendor == "GenuineIntel"
        return Machine(
            manifest.host, manifest.kernel, f"ptweave {manifest.ptweave}",
            # perf works around errata by it: the soft engine's packets have none
            f"GenuineIntel,{cpu.family},{cpu.model},{cpu.stepping}" if intel else "GenuineIntel,0,0,0",
            1 + max((row["cpu"] or 0 for row in self.rows), default=0), list(manifest.command),
            (conversion.mult, conversion.shift, conversion.zero), (cpu.tsc_ratio[0], cpu.tsc_ratio[1]), cpu.nom_freq,
            cpu.mtc_freq, self.by_cpu, self._filters())

    def _filters(self) -> str:
        found = []
        for one in self.bundle.manifest.filters:
            row = next((row for row in self.rows if row["kind"] == SidebandKind.MAP
                        and row["addr"] <= one.first < row["addr"] + row["size"]), None)
            if one.kind is FilterKind.FILTER and row is not None:
                found.append((one.first - row["addr"] + row["offset"], one.last - one.first + 1, row["path"]))
        return symbolic_filters(found)

    def _time(self, tsc: int) -> int:
        ns = self.conversion.clocks().to_ns(tsc)
        return (ns if self.conversion.to_tsc(ns) >= tsc else ns + 1) % (1 << 64)

    # --- records ---

    def _moment(self, row: Row, tid: int | None = None) -> Moment:
        pid = int(row["pid"])
        return Moment(pid, int(row["tid"] or pid) if tid is None else tid, self._time(row["tsc"]))

    def _record(self, row: Row) -> None:
        writer = self.writer
        match SidebandKind(row["kind"]):
            case SidebandKind.PROCESS:
                if row["detail"] in ("fork", "thread"):
                    when = self._moment({**row, "tsc": self.begins[row["space"]]})
                    writer.fork(when, int(row["value"] or 0), int(row["value"] or 0))
                else:
                    name = str(row["path"] or "").rsplit("/", 1)[-1]
                    writer.comm(self._moment(row), name.encode("utf-8", "replace"), execed=True)
            case SidebandKind.THREAD:
                when = self._moment(row)
                if when.tid != when.pid:
                    writer.fork(when, when.pid, int(row["value"] or when.pid))
                if not self.by_cpu:  # perf takes the record's processor for the task's
                    writer.itrace_start(when)
            case SidebandKind.COMM:
                writer.comm(self._moment(row), str(row["detail"]).encode("utf-8", "replace"), execed=False)
            case SidebandKind.THREAD_EXIT:
                writer.exit(self._moment(row))
            case SidebandKind.UNMAP:
                self.exported.lack("when code was unmapped")
            case _:
                pass

    def _maps(self) -> None:
        there: dict[int, list[tuple[int, int, Any]]] = {}
        for row in self.rows:
            if row["kind"] not in (SidebandKind.MAP, SidebandKind.CODE):
                continue
            known = there.setdefault(row["space"], [])
            first, last = row["addr"], row["addr"] + row["size"]
            in_the_way = [image for begin, end, image in known if first < end and begin < last]
            if any(image != row["image"] for image in in_the_way):
                self.exported.lack("to the instruction when code took other code's place")
            known.append((first, last, row["image"]))
            free = not in_the_way
            when = self._moment({**row, "tsc": self.begins.get(row["space"], row["tsc"]) if free else row["tsc"]})
            name, build_id = self._file(row)
            self.writer.mmap(when, first, row["size"], row["offset"], name.encode("utf-8", "replace"), build_id)

    def _file(self, row: Row) -> tuple[str, bytes]:
        """The path perf finds the code below symfs by, and its build id."""
        path = str(row["path"] or "/anonymous")
        path = path if path.startswith("/") else f"/{path}"  # "[vdso]" alone would be that of perf's own machine
        image = row["image"]
        if image is None:
            self.exported.lack(f"the code of {path}: the run does not have it")
            return path, b""
        key = f"{image} {path}"
        if key not in self.names:
            self.names[key] = self._copy(image, path)
        known = next((change.image.build_id for change in self.code.space(row["space"]).changes
                      if change.image is not None and change.image.file is not None
                      and change.image.file.name == image), None)
        return self.names[key], bytes.fromhex(known) if known else b""

    def _copy(self, image: str, path: str) -> str:
        parts = [part for part in path.split("/") if part not in ("", ".", "..") and "\0" not in part]
        name = "/" + "/".join(parts or ["code"])
        if name in self.names.values():
            name += f".{image[:12]}"  # another file was at that path before
        target = self.output / SYMFS / name.lstrip("/")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.bundle.images / Path(image).name, target)
        except FileNotFoundError:
            self.exported.lack(f"the code of {path}: the run does not have it")
        return name

    def _switches(self) -> None:
        """Each when the processor's task before it left: the kernel says that one came after its tracing has begun."""
        since: dict[int, int] = {}
        running: dict[int, int | None] = {}
        for row in self.rows:
            if row["kind"] != SidebandKind.SWITCH or row["cpu"] is None:
                continue
            cpu = row["cpu"]
            if row["value"] == SwitchWhen.DONE and running.get(cpu) == row["thread"]:
                continue  # the row before it has told of it
            running[cpu] = row["thread"]
            if row["thread"] is None:
                since[cpu] = row["tsc"]
                continue
            when = self._moment({**row, "tsc": since.get(cpu, row["tsc"])})
            self.writer.switch(Moment(when.pid, when.tid, when.time, cpu))
            since.pop(cpu, None)

    # --- packets ---

    def _trace(self, thread: Thread) -> None:
        if not thread.present:
            if not self.by_cpu:
                self.exported.lack(f"the trace of thread {thread.number}: the run does not have it")
            return
        if thread.end < thread.size:
            self.exported.lack(f"bytes after the orderly end of thread {thread.number}'s trace")
        cpu = int(thread.path.stem.removeprefix("cpu-")) if thread.of_cpu else -1
        mine = [row for row in self.rows if row["kind"] == SidebandKind.THREAD and row["thread"] == thread.number]
        tid = -1 if thread.of_cpu else int(mine[-1]["tid"]) if mine else thread.number + 1
        pid = int(mine[-1]["pid"]) if mine else tid
        self.writer.trace(thread.path, thread.end, tid=tid, cpu=cpu)
        last = max((row["tsc"] for row in self.rows), default=0)
        when = Moment(pid, tid, self._time(last), cpu)
        begin = 0
        for lost in thread.lost:
            self.writer.aux(when, begin, lost.offset - begin, truncated=True)
            begin = lost.offset
        self.writer.aux(when, begin, thread.end - begin)


def beginnings(rows: Sequence[Row]) -> dict[int, int]:
    """When each address space begins for perf, in TSC ticks, by the sideband's rows. One in which a thread goes on
    begins with the thread."""
    processes = [row for row in reversed(rows) if row["kind"] == SidebandKind.PROCESS]
    threads = [row for row in reversed(rows) if row["kind"] == SidebandKind.THREAD]
    begins = {row["space"]: row["tsc"] for row in processes}
    gone_on = {row["space"] for row in processes if row["detail"] == "thread"}
    began = {row["thread"]: row["tsc"] for row in threads}
    return begins | {row["space"]: min(begins[row["space"]], began[row["thread"]]) for row in threads
                     if row["space"] in gone_on}
