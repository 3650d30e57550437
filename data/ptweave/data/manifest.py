# SPDX-License-Identifier: MIT
"""`run.json`: what was run, where, how, with which clocks, and how far the recording got."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from ptweave.data.errors import BadInput
from ptweave.data.notices import Notice, NoticeKind

FORMAT_VERSION = 1
"""Version of the bundle as a whole; a reader refuses a newer one."""


class State(StrEnum):
    """How far a bundle is."""

    RECORDING = "recording"  # being written, or its recorder died
    PARTIAL = "partial"  # the recording ended early; what is there is right
    COMPLETE = "complete"


class Times(StrEnum):
    """Which packets decoding takes times from."""

    FULL = "full"  # all of them: TSC, MTC, TMA, CYC, CBR
    TSC = "tsc"  # TSC packets only: coarser, and the path decoder can be used on recordings with MTC or exact times


@dataclass
class Cpu:
    """The processor the packets follow (libipt's errata are chosen by it), and what its timing packets mean.

    `mtc_freq`: MTC period, IA32_RTIT_CTL[17:14]; `nom_freq`: MSR_PLATFORM_INFO[15:8], the ratio of the TSC's frequency
    to the bus clock; `tsc_ratio`: EBX and EAX of CPUID leaf 0x15, the ratio of TSC to core crystal clock
    (SDM vol. 3, 33.8.3). 0: not known, or not in the trace.
    """

    vendor: str = ""
    family: int = 0
    model: int = 0
    stepping: int = 0
    tsc_hz: int = 0
    mtc_freq: int = 0
    nom_freq: int = 0
    tsc_ratio: tuple[int, int] = (0, 0)  # (ebx, eax): TSC ticks per (crystal ticks)


class FilterKind(StrEnum):
    """What an address range does (IA32_RTIT_CTL.ADDRn_CFG)."""

    FILTER = "filter"  # the processor traces only inside such ranges
    STOP = "stop"  # it stops tracing for good when execution comes there


@dataclass
class Filter:
    """An address range the processor was given, both ends included (IA32_RTIT_ADDRn_A and _B); at most MAX_FILTERS."""

    kind: FilterKind
    first: int
    last: int


MAX_FILTERS = 4


@dataclass
class Clocks:
    """Two moments known on both clocks: TSC ticks and ns of CLOCK_MONOTONIC; `realtime_ns` dates the first."""

    tsc0: int = 0
    t0_ns: int = 0
    tsc1: int = 0
    t1_ns: int = 0
    realtime_ns: int = 0

    def to_ns(self, tsc: int) -> int:
        """Time of a TSC value, in integers (SDM vol. 3, 18.17: the TSC is invariant here)."""
        span = self.tsc1 - self.tsc0
        if span <= 0:
            return self.t0_ns
        return self.t0_ns + (tsc - self.tsc0) * (self.t1_ns - self.t0_ns) // span


@dataclass
class Manifest:
    """The manifest of a run bundle. `lacks` lists, in words, what this recording cannot hold and why; `notices` what
    the program does that the threads mode cannot carry."""

    format_version: int = FORMAT_VERSION
    state: State = State.RECORDING
    command: list[str] = field(default_factory=list)
    cwd: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    host: str = ""
    kernel: str = ""
    ptweave: str = ""
    cpu: Cpu = field(default_factory=Cpu)
    engine: str = ""
    engine_version: str = ""
    threads_mode: str = "native"
    view: str = ""  # process mode: shared, private
    shared: list[str] = field(default_factory=list)  # variables and addresses passed through to all threads
    events: str = ""
    clocks: Clocks = field(default_factory=Clocks)
    filters: list[Filter] = field(default_factory=list)  # address filters that were set; libipt follows them
    exact_time: bool = False  # times by branch, as perf tells them, instead of libipt's at the packets it has read
    times: Times = Times.FULL  # as it was decoded last
    ticks: bool = False  # decode a `tick` event at every update of the time
    pid: int = 0
    status: int | None = None  # the target's wait status, as waitpid gives it
    steps: dict[str, float] = field(default_factory=dict)  # step → seconds
    lacks: list[str] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)

    def save(self, path: Path) -> None:
        """Replace the manifest in one step, on disk before this returns."""
        partial = path.with_name(path.name + ".partial")
        raw = asdict(self)
        raw["state"] = self.state.value
        with partial.open("w") as out:
            out.write(json.dumps(raw, indent=1) + "\n")
            out.flush()
            os.fsync(out.fileno())
        partial.replace(path)

    @classmethod
    def load(cls, path: Path) -> Manifest:
        """Read a manifest. Raises BadInput when it is missing, malformed or of a newer format."""
        try:
            raw: dict[str, Any] = json.loads(path.read_text())
            version = int(raw["format_version"])
            if version > FORMAT_VERSION:
                raise BadInput(f"has format {version}, newer than this ptweave reads ({FORMAT_VERSION})",
                               where=str(path.parent), remedy="use a newer ptweave")
            known = {f.name for f in fields(cls)}
            values = {name: value for name, value in raw.items() if name in known}
            values["state"] = State(raw["state"])
            values["times"] = Times(raw.get("times", Times.FULL.value))
            cpu = dict(raw["cpu"])
            ebx, eax = cpu.pop("tsc_ratio", (0, 0))
            values["cpu"] = Cpu(**cpu, tsc_ratio=(int(ebx), int(eax)))
            values["clocks"] = Clocks(**raw["clocks"])
            values["filters"] = [_filter(entry) for entry in raw.get("filters", [])]
            values["notices"] = [Notice(**{**entry, "kind": NoticeKind(entry["kind"])})
                                 for entry in raw.get("notices", [])]
            return cls(**values)
        except FileNotFoundError as error:
            raise BadInput("is not a run bundle (it has no run.json)", where=str(path.parent),
                           remedy="give a folder that ptweave wrap or record made") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadInput(f"has a run.json that cannot be read ({error})", where=str(path.parent),
                           remedy="record the run again") from error


def _filter(raw: dict[str, Any]) -> Filter:
    """One entry of `filters`. Raises ValueError for a range that cannot be."""
    filter_ = Filter(FilterKind(raw["kind"]), int(raw["first"]), int(raw["last"]))
    if not 0 <= filter_.first <= filter_.last < 1 << 64:
        raise ValueError(f"address filter {raw}")
    return filter_
