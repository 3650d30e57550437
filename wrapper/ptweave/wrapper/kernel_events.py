# SPDX-License-Identifier: MIT
"""The recorder in C, as an object: loads the BPF programs, follows tasks, filters, hands out batches of records.

`wrapper/src/events.h` is its reference manual; what becomes of the batches is its caller's.
"""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from ptweave.data import syscall_arguments, syscall_table
from ptweave.data.errors import BadInput, MachineLacks
from ptweave.wrapper import uprobes
from ptweave.wrapper.bpf_checks import explain_failure, load_extension
from ptweave.wrapper.filters import Key, Kind, Rules, bits, pack
from ptweave.wrapper.uprobes import Probe

_OBJECT = Path(__file__).parent / "_bpf" / "syscalls.bpf.o"
_INITIAL_PID_NAMESPACE = 0xEFFFFFFC  # include/linux/proc_ns.h: PROC_PID_INIT_INO
FILE = 8  # the kind of records that define files: enum ptw_record_kind
CAPTURE_MAX = 4096  # PTW_CAPTURE_LIMIT
FRAMES_MAX = 64  # PTW_FRAMES
RING_LEAST, RING_MOST = 4096, 1 << 30
TURN_SECONDS = 0.1
"""After that batches wait for the next turn: or signals would, for as long as rows come faster than they are stored."""


class Variant(Enum):
    """Which kind of BPF programs: typed ones, raw ones, or the first that the kernel takes."""

    AUTO = "auto"
    TYPED = "tp_btf"
    RAW = "raw_tp"


@dataclass(frozen=True)
class Options:
    """What is recorded, and the recorder's sizes; the defaults carry about a million calls a second over a caller's
    pause of a second."""

    ring_bytes: int = 32 << 20  # a power of two, at least a page
    wake_bytes: int = 0  # in the ring before it is drained; 0: a quarter of it, at most 1 MiB
    batch_rows: int = 1 << 16
    batches: int = 16  # at most so many at a time, about 20 MB each when full
    batch_age_ms: int = 100  # how old a row may be before it is stored, if service() is called
    variant: Variant = Variant.AUTO
    capture: int = 0  # bytes kept of each buffer, at most CAPTURE_MAX
    frames: int = 0  # frames kept of each call's stack, at most FRAMES_MAX
    everybody: bool = False  # every task of the machine but our own
    rules: Rules = field(default_factory=lambda: Rules(kinds=frozenset({Kind.SYSCALL})))
    probes: Sequence[Probe] = ()  # places in programs, at most uprobes.MOST

    def check(self) -> None:
        """Raises BadInput for sizes that cannot be."""
        if self.ring_bytes & (self.ring_bytes - 1) or not RING_LEAST <= self.ring_bytes <= RING_MOST:
            raise BadInput(f"the ring cannot have {self.ring_bytes} bytes",
                           remedy="give a power of two from 4096 to 1 GiB")
        if not 0 <= self.wake_bytes <= self.ring_bytes:
            raise BadInput(f"the ring cannot be handed over at {self.wake_bytes} bytes",
                           remedy="give less than the ring has")
        if not 0 <= self.capture <= CAPTURE_MAX:
            raise BadInput(f"{self.capture} bytes of a buffer cannot be kept", remedy=f"give 0 to {CAPTURE_MAX}")
        if not 0 <= self.frames <= FRAMES_MAX:
            raise BadInput(f"{self.frames} frames cannot be kept", remedy=f"give 0 to {FRAMES_MAX}")


@dataclass(frozen=True)
class Lost:
    """So many calls with this number are missing, and why."""

    reason: str
    number: int | None  # None: numbers that are in no table
    count: int

    @property
    def key(self) -> str:
        """The ledger's name for it, such as `ring_full/write`."""
        return f"{self.reason}/{'other' if self.number is None else syscall_table.name_of(self.number)}"


class KernelEvents:
    """Not thread-safe. In a forked child of its creator it does nothing; what the child inherits ends with its exec."""

    def __init__(self, options: Options) -> None:
        """Loads the programs. Raises MachineLacks when this machine cannot: what is missing, and the remedy."""
        options.check()
        extension = load_extension()
        self.lib, self.ffi = extension.lib, extension.ffi
        self._object = programs()
        self._owner = os.getpid()
        self._options = options
        self._recorder: Any = None
        self._config: Any = None
        self._kept: list[Any] = []  # what the configuration points to
        self.variant = options.variant
        self._begin()

    def _begin(self) -> None:
        """Create and start the recorder, with the first kind of programs that the kernel takes."""
        wanted = self._options.variant
        for variant in (Variant.TYPED, Variant.RAW) if wanted is Variant.AUTO else (wanted,):
            error = self._create(variant)
            if error == 0:
                error = int(self.lib.ptw_recorder_start(self._recorder, self._config))
                if error == 0:
                    self.variant = variant
                    return
                self._destroy()
        raise explain_failure(-error, self.ffi.string(self.lib.ptw_recorder_trouble()).decode(errors="replace"))

    def _create(self, variant: Variant) -> int:
        options, ffi = self._options, self.ffi
        descriptions = ffi.new("uint8_t[]", syscall_arguments.descriptions())
        image = ffi.new("uint8_t[]", self._object)
        rules, keep = self._pack(options.rules)
        specs = ffi.new("uint8_t[]", uprobes.pack(options.probes))
        paths = [ffi.new("char[]", os.fsencode(one.path)) for one in options.probes]
        points = ffi.new("struct ptw_probe_point[]", [
            (path, one.offset, one.semaphore, int(one.at_return))
            for path, one in zip(paths, options.probes, strict=True)] or 1)
        config = ffi.new("struct ptw_config *", {
            "object": image,
            "object_size": len(self._object),
            "variant": self.lib.PTW_VARIANT_RAW if variant is Variant.RAW else self.lib.PTW_VARIANT_TYPED,
            "ring_bytes": options.ring_bytes,
            "wake_bytes": options.wake_bytes,
            "batch_rows": options.batch_rows,
            "batches": options.batches,
            "batch_age_ms": options.batch_age_ms,
            "pid_namespace": _pid_namespace(),
            "all": int(options.everybody),
            "self": os.getpid(),
            "capture": options.capture,
            "frames": options.frames,
            "descriptions": descriptions,
            "rules": rules[0],
            "probe_specs": specs, "probes": points, "probe_count": len(options.probes),
        })
        self._config, self._kept = config, [descriptions, image, keep, specs, paths, points]
        made = ffi.new("struct ptw_recorder **")
        error = int(self.lib.ptw_recorder_create(config, made))
        if error == 0:
            self._recorder = made[0]
        return error

    def _pack(self, rules: Rules) -> tuple[Any, list[Any]]:
        """The rules in C, and what must be kept as long as they are."""
        packed, fallback = pack(rules)
        keep: list[Any] = []
        array = self.ffi.new("struct ptw_filter_rule[]", max(1, len(packed)))
        for at, rule in enumerate(packed):
            array[at].filter, array[at].accept, array[at].active = rule.key.value, rule.accept, rule.active
            if isinstance(rule.value, int):
                array[at].id = rule.value
                continue
            raw = rule.value
            if rule.key is Key.EXE:  # as the programs have it: components, the last one first
                raw = b"".join(part + b"\0" for part in reversed(raw.strip(b"/").split(b"/")))
            text = self.ffi.new("char[]", raw)
            keep.append(text)
            array[at].text, array[at].size = text, len(raw)
        result = self.ffi.new("struct ptw_filter_rules *", {
            "kinds": bits(rules.kinds), "used": sum(1 << key.value for key in fallback), "count": len(packed),
            "rule": array, "fallback": [fallback.get(key, 0) for key in Key]})
        return result, [*keep, array, result]

    def filter(self, rules: Rules) -> None:
        """Replace the rules: a call is judged by the old or by the new ones. Raises BadInput when they do not fit."""
        packed, keep = self._pack(rules)
        error = int(self.lib.ptw_recorder_filter(self._recorder, packed))
        del keep
        if error:
            raise BadInput(f"the filter rules cannot be set ({os.strerror(-error)})",
                           remedy="give fewer or shorter ones")

    @property
    def active(self) -> bool:
        """Whether it records, and in this process."""
        return self._recorder is not None and os.getpid() == self._owner

    def follow(self, tid: int) -> bool:
        """Record a task and all that it will create; False when that is so already. Raises MachineLacks when it is
        gone."""
        error = -int(self.lib.ptw_recorder_follow(self._recorder, tid))
        if error and error != errno.EEXIST:
            raise MachineLacks(f"cannot be followed ({os.strerror(error)})", where=f"process {tid}",
                               remedy="its system calls are not recorded")
        return not error

    def killed(self, pid: int) -> int:
        """The signal that ended the last process of this number that was followed; 0: none did, or it is not known."""
        return max(0, int(self.lib.ptw_recorder_killed(self._recorder, pid)))

    def fd(self) -> int:
        """A descriptor that is readable when there is a batch."""
        return int(self.lib.ptw_recorder_fd(self._recorder))

    def batches(self, *, everything: bool) -> Iterator[Any]:
        """The batches that are ready, as many as TURN_SECONDS allow; with `everything` all records there are. A batch
        is valid until the next."""
        taken = self.ffi.new("struct ptw_batch **")
        until = math.inf if everything else time.monotonic() + TURN_SECONDS
        while time.monotonic() < until and self.lib.ptw_recorder_take(self._recorder, int(everything), taken) == 1:
            try:
                yield taken[0]
            finally:
                self.lib.ptw_recorder_release(self._recorder, taken[0])

    def backlog(self) -> int:
        """How many batches are ready."""
        return int(self.lib.ptw_recorder_backlog(self._recorder))

    def stop(self) -> None:
        """Detach; what was recorded stays to be taken."""
        self.lib.ptw_recorder_stop(self._recorder)

    def totals(self) -> Any:
        """`struct ptw_totals`: exact after `stop` and the last batch."""
        totals = self.ffi.new("struct ptw_totals *")
        self.lib.ptw_recorder_totals(self._recorder, totals)
        return totals

    def losses(self) -> list[Lost]:
        """What is known to be missing so far, by reason and call; exact after the last batch."""
        reasons = {"ring_full": self.lib.PTW_LOSS_RING_FULL, "no_memory": self.lib.PTW_LOSS_NO_MEMORY,
                   "no_exit_seen": self.lib.PTW_LOSS_NO_EXIT}
        found = []
        for reason, index in reasons.items():
            for number in range(syscall_arguments.NUMBERS + 1):
                count = int(self.lib.ptw_recorder_lost(self._recorder, index, number))
                if count:
                    found.append(Lost(reason, number if number < syscall_arguments.NUMBERS else None, count))
        return found

    def close(self) -> None:
        """Detach and free everything."""
        if self.active:
            self._destroy()

    def _destroy(self) -> None:
        self.lib.ptw_recorder_destroy(self._recorder)
        self._recorder = None


def programs() -> bytes:
    """The BPF programs' object file, read once: whoever gives up root's privileges may not be able to later.

    Raises MachineLacks when it was not built, or cannot be read.
    """
    return _read(_OBJECT)


@cache
def _read(path: Path) -> bytes:
    remedy = "install clang and libbpf-dev, and build ptweave again"
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise MachineLacks("the BPF programs are not built", where=str(path), remedy=remedy) from error
    except OSError as error:
        raise MachineLacks(f"the BPF programs cannot be read ({error.strerror})", where=str(path),
                           remedy=remedy) from error


def _pid_namespace() -> int:
    """Inode of our pid namespace; 0 for the initial one, whose numbers the kernel gives for nothing."""
    inode = Path("/proc/self/ns/pid").stat().st_ino
    return 0 if inode == _INITIAL_PID_NAMESPACE else inode


__all__ = ["CAPTURE_MAX", "FILE", "FRAMES_MAX", "KernelEvents", "Lost", "Options", "Variant", "programs"]
