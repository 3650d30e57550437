# SPDX-License-Identifier: MIT
"""The description of an LLDB trace bundle (`trace.json`, plug-in intel-pt), of all the forms LLDB has had.

| | to LLDB 12 | to LLDB 14 | now |
|---|---|---|---|
| `type`, `cpuInfo` | in `trace` | at the top | at the top |
| a thread's packets | `traceFile` | `traceBuffer` | `iptTrace` |
| processors | | `cores`: `coreId`, `traceBuffer` | `cpus`: `id`, `iptTrace` |

Numbers may be JSON numbers, or strings decimal or 0x…, as LLDB writes them. The JSON is somebody else's: whatever is
not as it must be raises BadInput with its place in the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ptweave.data.errors import BadInput
from ptweave.data.manifest import Clocks, Cpu

MAX_JSON = 64 << 20
KERNEL_ADDRESS = 0xFFFFFFFF81000000
"""Where LLDB takes a kernel to lie that says nothing else."""

_NUMBER = re.compile(r"0[xX][0-9a-fA-F]{1,32}|[0-9]{1,32}")


@dataclass(frozen=True)
class Module:
    """A file of code. `file` is a copy of it, None when it is at its original path; `uuid` is its build id in hex."""

    system_path: str
    file: str | None
    address: int
    uuid: str | None


@dataclass(frozen=True)
class ThreadTrace:
    """A thread; without `packets` they are in the traces of the processors it ran on."""

    tid: int
    packets: str | None


@dataclass(frozen=True)
class Process:
    pid: int
    threads: list[ThreadTrace]
    modules: list[Module]


@dataclass(frozen=True)
class CpuTrace:
    """A processor's packets, and perf's records of its context switches."""

    number: int
    packets: str
    switches: str | None


@dataclass(frozen=True)
class Conversion:
    """perf's numbers for TSC to ns (perf_event_open(2), time_zero)."""

    mult: int
    shift: int
    zero: int  # signed

    def clocks(self) -> Clocks:
        return Clocks(tsc0=0, t0_ns=self.zero, tsc1=1 << self.shift, t1_ns=self.zero + self.mult)

    def to_tsc(self, ns: int) -> int:
        """The TSC at perf's time `ns`; 0 before the TSC's beginning."""
        return max(0, (ns - self.zero << self.shift) // self.mult)


@dataclass(frozen=True)
class Description:
    """A whole trace.json."""

    cpu: Cpu
    processes: list[Process] = field(default_factory=list)
    cpus: list[CpuTrace] = field(default_factory=list)
    conversion: Conversion | None = None
    kernel: Module | None = None


class _Node:
    """A JSON value and its place."""

    def __init__(self, value: Any, place: str, where: str) -> None:
        self.value = value
        self.place = place
        self.where = where

    def wrong(self, what: str) -> BadInput:
        return BadInput(f"{self.place or 'the whole'} {what}", where=self.where,
                        remedy="give the trace.json of an LLDB trace bundle")

    def get(self, *names: str) -> _Node | None:
        """The first member there is of these names; null counts as absent."""
        if not isinstance(self.value, dict):
            raise self.wrong("is not an object")
        for name in names:
            if self.value.get(name) is not None:
                return _Node(self.value[name], f"{self.place}.{name}" if self.place else name, self.where)
        return None

    def need(self, *names: str) -> _Node:
        found = self.get(*names)
        if found is None:
            raise self.wrong(f"has no {names[-1]}")
        return found

    def items(self) -> Iterator[_Node]:
        if not isinstance(self.value, list):
            raise self.wrong("is not a list")
        for index, value in enumerate(self.value):
            yield _Node(value, f"{self.place}[{index}]", self.where)

    def text(self) -> str:
        if not isinstance(self.value, str) or not self.value or len(self.value) > 4096 or "\0" in self.value:
            raise self.wrong("is not a text of 1 to 4096 characters")
        try:
            self.value.encode()
        except UnicodeEncodeError as error:
            raise self.wrong("is not Unicode text") from error
        return self.value

    def number(self, end: int) -> int:
        value = self.value
        if isinstance(value, str) and _NUMBER.fullmatch(value):
            value = int(value, 16 if value[:2].lower() == "0x" else 10)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < end:
            raise self.wrong(f"is not a number from 0 to {end - 1:#x}")
        return value


def parse(data: bytes, where: str) -> Description:
    """Read a description; `where` names the file in errors. Raises BadInput."""
    try:
        root = _Node(json.loads(data), "", where)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise BadInput(f"is not JSON ({error})", where=where,
                       remedy="give the trace.json of an LLDB trace bundle") from error
    head = root.get("trace") or root
    kind = head.need("type").text()
    if kind != "intel-pt":
        raise head.wrong(f"is of type {kind!r}, not intel-pt")
    description = Description(
        _cpu(head.need("cpuInfo")),
        [_process(node) for node in _list(root, "processes")],
        [_cpu_trace(node) for node in _list(root, "cpus", "cores")],
        _conversion(root.get("tscPerfZeroConversion")), _kernel(root.get("kernel")))
    _check(root, description)
    return description


def _check(root: _Node, description: Description) -> None:
    if not description.processes and description.kernel is None:
        raise root.wrong("has neither processes nor a kernel")
    if description.kernel is not None and (description.processes or not description.cpus):
        raise root.wrong("has a kernel: then there are cpus and no processes")
    if description.processes and description.cpus and description.conversion is None:
        raise root.wrong("has cpus, but no tscPerfZeroConversion to tell when they switched")
    pids = [process.pid for process in description.processes]
    if description.cpus and len(set(pids)) < len(pids):
        raise root.wrong("names a process twice")


def _list(root: _Node, *names: str) -> list[_Node]:
    node = root.get(*names)
    return [] if node is None else list(node.items())


def _cpu(node: _Node) -> Cpu:
    known = node.need("vendor").text() in ("GenuineIntel", "intel")
    return Cpu("GenuineIntel" if known else "", node.need("family").number(1 << 16),
               node.need("model").number(1 << 8), node.need("stepping").number(1 << 8))


def _process(node: _Node) -> Process:
    return Process(
        node.need("pid").number(1 << 31),
        [_thread(thread) for thread in _list(node, "threads")],
        [_module(module) for module in _list(node, "modules")])


def _thread(node: _Node) -> ThreadTrace:
    packets = node.get("iptTrace", "traceBuffer", "traceFile")
    return ThreadTrace(node.need("tid").number(1 << 31), None if packets is None else packets.text())


def _module(node: _Node) -> Module:
    file, uuid = node.get("file"), node.get("uuid")
    return Module(node.need("systemPath").text(), None if file is None else file.text(),
                  node.need("loadAddress").number(1 << 64), None if uuid is None else _uuid(uuid))


def _uuid(node: _Node) -> str:
    digits = node.text().replace("-", "").lower()
    if not re.fullmatch(r"(?:[0-9a-f]{2}){1,64}", digits):
        raise node.wrong("is not a UUID")
    return digits


def _cpu_trace(node: _Node) -> CpuTrace:
    switches = node.get("contextSwitchTrace")
    return CpuTrace(node.need("coreId", "id").number(1 << 16),
                    node.need("traceBuffer", "iptTrace").text(), None if switches is None else switches.text())


def _conversion(node: _Node | None) -> Conversion | None:
    if node is None:
        return None
    mult, shift = node.need("timeMult"), node.need("timeShift").number(64)
    if not mult.number(1 << 32):
        raise mult.wrong("is 0")
    zero = node.need("timeZero").number(1 << 64)
    return Conversion(mult.number(1 << 32), shift, zero - (1 << 64) if zero >> 63 else zero)


def _kernel(node: _Node | None) -> Module | None:
    if node is None:
        return None
    file, address = node.need("file").text(), node.get("loadAddress")
    return Module("[kernel.kallsyms]", file, KERNEL_ADDRESS if address is None else address.number(1 << 64), None)
