# SPDX-License-Identifier: MIT
"""What the records say that an importer needs, one small class each; `when` is the record's sample id."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ptweave.data.perf.attrs import Attr
from ptweave.data.perf.cursor import Cursor, Short
from ptweave.data.perf.format import CpuMode, Misc, RecordType
from ptweave.data.perf.samples import Sample, SampleId, trailer_of

BUILD_ID_MAX = 20
TEXT_MAX = 1 << 12


@dataclass(slots=True)
class Record:
    """Any record: its type, `misc` bits, and who, when and where. `order` is its place in the file."""

    type: int
    misc: int
    when: SampleId
    order: int = 0


@dataclass(slots=True)
class Mmap(Record):
    """MMAP or MMAP2: `pid` mapped `path` from `offset` on at `start`. pid −1: the kernel."""

    pid: int = 0
    tid: int = 0
    start: int = 0
    size: int = 0
    offset: int = 0
    path: str = ""
    executable: bool = True
    build_id: str | None = None
    device: tuple[int, int] = (0, 0)  # major, minor; of MMAP2 without a build id
    inode: int = 0

    @property
    def kernel(self) -> bool:
        return self.misc & 7 in (CpuMode.KERNEL, CpuMode.GUEST_KERNEL)

    @property
    def guest(self) -> bool:
        return self.misc & 7 in (CpuMode.GUEST_KERNEL, CpuMode.GUEST_USER)


@dataclass(slots=True)
class Comm(Record):
    """A task has a new name; `exec`: because it runs another program."""

    pid: int = 0
    tid: int = 0
    name: str = ""

    @property
    def exec(self) -> bool:
        return bool(self.misc & Misc.COMM_EXEC)


@dataclass(slots=True)
class Task(Record):
    """FORK or EXIT."""

    pid: int = 0
    parent_pid: int = 0
    tid: int = 0
    parent_tid: int = 0
    time: int = 0


@dataclass(slots=True)
class ItraceStart(Record):
    """Tracing of a task began."""

    pid: int = 0
    tid: int = 0


@dataclass(slots=True)
class Aux(Record):
    """AUX: the kernel put `size` bytes at `offset` of the AUX buffer."""

    offset: int = 0
    size: int = 0
    flags: int = 0


@dataclass(slots=True)
class Lost(Record):
    """LOST or LOST_SAMPLES: `count` records were dropped."""

    count: int = 0


@dataclass(slots=True)
class Switch(Record):
    """SWITCH or SWITCH_CPU_WIDE: `other_tid` is the task that came next (out) or ran before (in); −1 not known."""

    other_pid: int = -1
    other_tid: int = -1

    @property
    def out(self) -> bool:
        return bool(self.misc & Misc.SWITCH_OUT)


@dataclass(slots=True)
class SchedSwitch(Record):
    """A sample of the tracepoint sched:sched_switch: the sample's cpu goes on with `next_tid`."""

    next_tid: int = -1
    next_comm: str = ""


@dataclass(slots=True)
class TextPoke(Record):
    """TEXT_POKE: at `address` the kernel's code is `new` from then on; `old` was there before (empty: nothing)."""

    address: int = 0
    old: bytes = b""
    new: bytes = b""

    @property
    def kernel(self) -> bool:
        return self.misc & 7 == CpuMode.KERNEL


@dataclass(slots=True)
class AuxSample(Record):
    """A sample that carries Intel PT: `size` bytes at `at` in the file (or `data`, where they were compressed)."""

    at: int = -1
    size: int = 0
    data: bytes | None = None


@dataclass(slots=True)
class Auxtrace(Record):
    """AUXTRACE: `size` bytes of Intel PT follow at `at` in the file."""

    size: int = 0
    offset: int = 0
    reference: int = 0
    index: int = 0
    tid: int = -1
    cpu: int = -1
    at: int = 0


@dataclass(slots=True)
class AuxtraceError(Record):
    """What `perf` itself found wrong with the AUX area."""

    kind: int = 0
    code: int = 0
    cpu: int = -1
    pid: int = -1
    tid: int = -1
    ip: int = 0
    time: int = 0
    message: str = ""


@dataclass(frozen=True)
class IntelPt:
    """AUXTRACE_INFO of Intel PT: what the bits of the event's config mean, and how TSC becomes time."""

    pmu_type: int = 0
    time_shift: int = 0
    time_mult: int = 0
    time_zero: int = 0
    cap_user_time_zero: bool = False
    tsc_bit: int = 0
    noretcomp_bit: int = 0
    have_sched_switch: int = 0
    snapshot_mode: bool = False
    per_cpu_mmaps: bool = False
    mtc_bit: int = 0
    mtc_freq_bits: int = 0
    tsc_ctc_ratio_n: int = 0
    tsc_ctc_ratio_d: int = 0
    cyc_bit: int = 0
    max_nonturbo_ratio: int = 0
    filter: str = ""
    cap_event_trace: bool = False

    def tsc_of(self, time: int) -> int:
        """The TSC at a perf time, as perf itself converts it: time_zero + tsc · mult >> shift turned round."""
        if not self.time_mult:
            return 0
        since = time - self.time_zero & _MASK
        whole, rest = divmod(since, self.time_mult)
        return ((whole << self.time_shift) + (rest << self.time_shift & _MASK) // self.time_mult) & _MASK


_MASK = (1 << 64) - 1


@dataclass
class Raw:
    """A record's bytes: `start` to `end` of `data` lie behind its header and before its sample id."""

    type: int
    misc: int
    data: bytes | memoryview
    start: int
    end: int
    at: int = 0  # in the file, of `data`'s beginning; −1 when it was compressed
    order: int = 0
    when: SampleId = field(default_factory=SampleId)

    def cursor(self) -> Cursor:
        return Cursor(self.data, self.start, self.end)


def parse_kernel_record(raw: Raw, attr: Attr | None) -> Record | None:
    """A record of the kernel's that is no sample: its trailer goes into `when`, the rest is parsed. None for types that
    nobody here needs. Raises Short when it does not fit."""
    raw.when = trailer_of(attr, raw.data, raw.end)
    if attr is not None:
        raw.end -= attr.trailer
    if raw.end < raw.start:
        raise Short("no room for the sample id")
    return parse(raw)


def parse(raw: Raw) -> Record | None:
    """The record's class, filled; None for types nobody here needs. Raises Short when it does not fit."""
    reader = _READERS.get(raw.type)
    return None if reader is None else reader(raw, raw.cursor())


def _mmap(raw: Raw, c: Cursor) -> Mmap:
    return Mmap(raw.type, raw.misc, raw.when, raw.order, pid=c.i32(), tid=c.i32(), start=c.u64(), size=c.u64(),
                offset=c.u64(), path=c.text(TEXT_MAX), executable=not raw.misc & Misc.MMAP_DATA)


def _mmap2(raw: Raw, c: Cursor) -> Mmap:
    found = Mmap(raw.type, raw.misc, raw.when, raw.order, pid=c.i32(), tid=c.i32(), start=c.u64(), size=c.u64(),
                 offset=c.u64())
    if raw.misc & Misc.MMAP_BUILD_ID:
        size = c.u8()
        c.skip(3)
        value = c.bytes(BUILD_ID_MAX)
        if not 0 < size <= BUILD_ID_MAX:
            raise Short(f"a build id of {size} bytes")
        found.build_id = value[:size].hex()
    else:
        found.device, found.inode = (c.u32(), c.u32()), c.u64()
        c.skip(8)
    protection, _flags = c.u32(), c.u32()
    found.executable = bool(protection & 4) or found.kernel
    found.path = c.text(TEXT_MAX)
    return found


def _comm(raw: Raw, c: Cursor) -> Comm:
    return Comm(raw.type, raw.misc, raw.when, raw.order, pid=c.i32(), tid=c.i32(), name=c.text(64))


def _task(raw: Raw, c: Cursor) -> Task:
    return Task(raw.type, raw.misc, raw.when, raw.order, pid=c.i32(), parent_pid=c.i32(), tid=c.i32(),
                parent_tid=c.i32(), time=c.u64())


def _itrace_start(raw: Raw, c: Cursor) -> ItraceStart:
    return ItraceStart(raw.type, raw.misc, raw.when, raw.order, pid=c.i32(), tid=c.i32())


def _aux(raw: Raw, c: Cursor) -> Aux:
    return Aux(raw.type, raw.misc, raw.when, raw.order, offset=c.u64(), size=c.u64(), flags=c.u64())


def _lost(raw: Raw, c: Cursor) -> Lost:
    if raw.type == RecordType.LOST:
        c.skip(8)
    return Lost(raw.type, raw.misc, raw.when, raw.order, count=c.u64())


def _switch(raw: Raw, c: Cursor) -> Switch:
    found = Switch(raw.type, raw.misc, raw.when, raw.order)
    if raw.type == RecordType.SWITCH_CPU_WIDE:
        found.other_pid, found.other_tid = c.i32(), c.i32()
    return found


def _text_poke(raw: Raw, c: Cursor) -> TextPoke:
    address, old, new = c.u64(), c.u16(), c.u16()
    return TextPoke(raw.type, raw.misc, raw.when, raw.order, address=address, old=c.bytes(old), new=c.bytes(new))


def _auxtrace(raw: Raw, c: Cursor) -> Auxtrace:
    found = Auxtrace(raw.type, raw.misc, raw.when, raw.order, size=c.u64(), offset=c.u64(), reference=c.u64(),
                     index=c.u32(), tid=c.i32(), cpu=c.i32())
    if raw.at < 0:
        raise Short("an AUXTRACE record inside compressed data")
    found.at = raw.at + raw.end
    return found


def _auxtrace_error(raw: Raw, c: Cursor) -> AuxtraceError:
    found = AuxtraceError(raw.type, raw.misc, raw.when, raw.order, kind=c.u32(), code=c.u32(), cpu=c.i32(),
                          pid=c.i32(), tid=c.i32())
    form = c.u32()
    found.ip = c.u64()
    if form:
        found.time = c.u64()
    found.message = c.text(64)
    return found


_READERS: dict[int, Callable[[Raw, Cursor], Record]] = {
    RecordType.MMAP: _mmap, RecordType.MMAP2: _mmap2, RecordType.COMM: _comm, RecordType.FORK: _task,
    RecordType.EXIT: _task, RecordType.ITRACE_START: _itrace_start, RecordType.AUX: _aux, RecordType.LOST: _lost,
    RecordType.LOST_SAMPLES: _lost, RecordType.SWITCH: _switch, RecordType.SWITCH_CPU_WIDE: _switch,
    RecordType.TEXT_POKE: _text_poke, RecordType.AUXTRACE: _auxtrace, RecordType.AUXTRACE_ERROR: _auxtrace_error,
}


def sched_switch(raw: Raw, sample: Sample) -> SchedSwitch | None:
    """A sched_switch sample's next task: the tracepoint's fields are prev_comm[16] at 8, prev_pid, prev_prio,
    prev_state (8), next_comm[16] at 40, next_pid at 56. None when they do not fit."""
    data = sample.raw
    if data is None or len(data) < 60:
        return None
    return SchedSwitch(raw.type, raw.misc, sample, raw.order,
                       next_tid=int.from_bytes(data[56:60], "little", signed=True),
                       next_comm=data[40:56].split(b"\0", 1)[0].decode("utf-8", "surrogateescape"))


def intel_pt_info(c: Cursor) -> IntelPt:
    """AUXTRACE_INFO's private part, behind its type. Raises Short when the first fields are missing.

    Fields came one after the other in perf's history: those behind the record's end are 0.
    """
    words = list(c.u64s(c.left // 8))
    if len(words) < 9:
        raise Short("too few fields")
    words += [0] * (17 - len(words))
    zero = words[3] - (1 << 64) if words[3] >> 63 else words[3]
    length = words[16]
    start = c.at - 8 * (c.left // 8)
    text, event_trace = "", False
    if length and start + 17 * 8 + length <= c.end:
        raw = bytes(c.data[start + 17 * 8:start + 17 * 8 + length])
        text = raw.split(b"\0", 1)[0].decode("utf-8", "replace")
    behind = 17 + (length // 8 + 1 if length else 0)  # the text and its NUL
    if length < c.end and behind < len(words):
        event_trace = bool(words[behind])
    return IntelPt(
        words[0] & 0xFFFFFFFF, words[1] & 63, words[2] & 0xFFFFFFFF, zero, bool(words[4]), words[5], words[6], words[7],
        bool(words[8]), bool(words[9]), words[10], words[11], words[12] & 0xFFFFFFFF, words[13] & 0xFFFFFFFF,
        words[14], words[15], text, event_trace)
