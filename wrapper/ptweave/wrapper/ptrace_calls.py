# SPDX-License-Identifier: MIT
"""System calls through ptrace, for where neither eBPF nor perf is allowed: each call stops its thread twice.

A process of our own traces (all of a tracee's requests must come from one thread, and the recorder's waits for its
children), and sends rows through a pipe. It seizes tasks and never stops them for longer than a call takes to be
written down; when it ends, or is killed, the kernel lets them go on untraced. It ends with its last tracee, or with us.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

import numpy as np
import pyarrow as pa

from ptweave.data.errors import MachineLacks
from ptweave.data.ledger import Ledger
from ptweave.wrapper import call_rows
from ptweave.wrapper.call_rows import NEVER, PATHS, Calls

_SYSCALL, _CONT, _GETEVENTMSG = 24, 7, 0x4201
_SEIZE, _INTERRUPT, _LISTEN, _GET_SYSCALL_INFO = 0x4206, 0x4207, 0x4208, 0x420E
_OPTIONS = 0x1 | 0x2 | 0x4 | 0x8 | 0x10  # SYSGOOD, FORK, VFORK, CLONE, EXEC
_EVENT_EXEC, _EVENT_STOP = 4, 128
_WALL = 0x40000000
_STOPPING = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
_AUDIT_ARCH_X86_64 = 0xC000003E
_OP_ENTRY, _OP_EXIT = 1, 2
_ENDS = (60, 231)
_PR_SET_PDEATHSIG = 1
_ROWS = 1000
_FLUSH_SECONDS = 0.05
_PATH_SIZE = 4096
_WORD = 8

Row = tuple[int, int, int, int, int, int, tuple[int, ...], int, list[bytes | None]]
"""t_enter, t_exit, pid, tid, number, ip, args, result, paths."""


class _SyscallInfo(ctypes.Structure):
    """`struct ptrace_syscall_info` (linux/ptrace.h) of an entry; of an exit its first word is the result."""

    _fields_ = (("op", ctypes.c_uint8), ("pad", ctypes.c_uint8 * 3), ("arch", ctypes.c_uint32),
                ("ip", ctypes.c_uint64), ("sp", ctypes.c_uint64), ("first", ctypes.c_uint64),
                ("args", ctypes.c_uint64 * 6))


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_uint64), ("size", ctypes.c_size_t))


@dataclass
class Counts:
    """Of calls that are no rows."""

    produced: int = 0
    compat: int = 0
    in_flight: int = 0


def _now() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class _Stop(Exception):
    """The recorder asks for the end."""


class _Tracer:
    """In the process that traces."""

    def __init__(self, pipe: Connection) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        self._libc.ptrace.restype = ctypes.c_long
        self._pipe = pipe
        self._rows: list[Row] = []
        self._calls: dict[int, Row] = {}  # by tid: the call it is in
        self._groups: dict[int, int] = {}  # tid → pid
        self._counts = Counts()

    def _ptrace(self, request: int, tid: int, address: object = None, data: object = None) -> int:
        done = int(self._libc.ptrace(request, tid, address, data))
        if done < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return done

    def seize(self, pid: int) -> None:
        """All threads of a process, those it makes meanwhile included. Raises OSError."""
        fresh = True
        while fresh:
            fresh = False
            for entry in Path(f"/proc/{pid}/task").iterdir():
                tid = int(entry.name)
                if tid in self._groups:
                    continue
                try:
                    self._ptrace(_SEIZE, tid, None, _OPTIONS)
                    self._ptrace(_INTERRUPT, tid)
                except ProcessLookupError:
                    continue
                self._groups[tid] = pid
                fresh = True

    def run(self) -> None:
        """Until there is no tracee left, or the recorder asks."""
        while True:
            try:
                tid, status = os.waitpid(-1, _WALL)
            except ChildProcessError:
                return
            if os.WIFSTOPPED(status):
                with contextlib.suppress(ProcessLookupError):  # it was killed meanwhile
                    self._stopped(tid, status)
            else:
                self._ended(tid)
            if len(self._rows) >= _ROWS:
                self.flush()

    def _stopped(self, tid: int, status: int) -> None:
        number, event = os.WSTOPSIG(status), status >> 16
        if number == signal.SIGTRAP | 0x80:
            self._call(tid)
            number = 0
        elif event == _EVENT_STOP and number in _STOPPING:
            self._ptrace(_LISTEN, tid)
            return
        elif event:
            if event == _EVENT_EXEC:
                self._exec(tid)
            number = 0
        self._ptrace(_SYSCALL, tid, None, number)

    def _exec(self, tid: int) -> None:
        """Another thread's exec made it the first: the call goes on under its tid. The others are gone."""
        former = ctypes.c_ulong(0)
        self._ptrace(_GETEVENTMSG, tid, None, ctypes.byref(former))
        call = self._calls.pop(former.value, None)
        if former.value != tid and call is not None:
            self._ended(tid)
            self._calls[tid] = call
        elif call is not None:
            self._calls[tid] = call

    def _group(self, tid: int) -> int:
        if tid not in self._groups:
            self._groups[tid] = tid
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{tid}/status").read_text(errors="replace").splitlines():
                    if line.startswith("Tgid:"):
                        self._groups[tid] = int(line.split()[1])
        return self._groups[tid]

    def _call(self, tid: int) -> None:
        now = _now()
        info = _SyscallInfo()
        self._ptrace(_GET_SYSCALL_INFO, tid, ctypes.sizeof(info), ctypes.byref(info))
        if info.op == _OP_ENTRY:
            self._enter(tid, info, now)
        elif info.op == _OP_EXIT and tid in self._calls:
            call = self._calls.pop(tid)
            result = ctypes.c_int64(info.first).value
            self._rows.append((call[0], now, call[2], tid, call[4], call[5], call[6], result, call[8]))

    def _enter(self, tid: int, info: _SyscallInfo, now: int) -> None:
        self._counts.produced += 1
        if info.arch != _AUDIT_ARCH_X86_64:
            self._counts.compat += 1
            return
        number, args = int(info.first), tuple(int(one) for one in info.args)
        paths = [self._string(tid, args[i]) for i in PATHS.get(number, ())]
        call = (now, NEVER, self._group(tid), tid, number & 0x7FFFFFFF, int(info.ip), args, 0, paths)
        if number in _ENDS:
            self._rows.append(call)
        else:
            self._calls[tid] = call

    def _string(self, tid: int, address: int) -> bytes | None:
        """The string at an address of the tracee's, its first 4096 bytes; None when it cannot be read."""
        found = b""
        while len(found) < _PATH_SIZE:
            size = min(256, 4096 - (address + len(found)) % 4096, _PATH_SIZE - len(found))
            buffer = ctypes.create_string_buffer(size)
            local = _Iovec(ctypes.addressof(buffer), size)
            remote = _Iovec(address + len(found), size)
            taken = self._libc.process_vm_readv(tid, ctypes.byref(local), ctypes.c_ulong(1), ctypes.byref(remote),
                                                ctypes.c_ulong(1), ctypes.c_ulong(0))
            if taken <= 0:
                return None
            text, end, _ = buffer.raw[:taken].partition(b"\0")
            found += text
            if end:
                break
        return found

    def _ended(self, tid: int) -> None:
        call = self._calls.pop(tid, None)
        self._groups.pop(tid, None)
        if call is not None:
            self._rows.append(call)

    def flush(self) -> None:
        """Send what there is. Raises OSError when nobody reads any more."""
        rows, self._rows = self._rows, []
        if rows:
            self._pipe.send(rows)

    def last_words(self) -> None:
        self._counts.in_flight = len(self._calls)
        self.flush()
        self._pipe.send(self._counts)


def _trace(pid: int, pipe: Connection) -> None:
    """The tracing process, from its fork to its end."""
    tracer = _Tracer(pipe)
    try:
        tracer.seize(pid)
    except OSError as error:
        pipe.send(error.errno or errno.EPERM)
        return
    pipe.send(0)

    def stop(number: int, frame: object) -> None:
        raise _Stop

    def flush(number: int, frame: object) -> None:
        tracer.flush()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGALRM, flush)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM, signal.SIGALRM])
    signal.setitimer(signal.ITIMER_REAL, _FLUSH_SECONDS, _FLUSH_SECONDS)
    with contextlib.suppress(_Stop):
        tracer.run()
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGALRM])
    tracer.last_words()


class PtraceCalls:
    """Use: `follow`, `batches` now and then, `stop`, `batches` once more, `account`, `close`. Not thread-safe."""

    name = "ptrace"
    lacks = "memory that arguments point to, paths excepted, and what descriptors refer to: ptrace is used"

    def __init__(self) -> None:
        self._tracers: dict[int, tuple[int, Connection]] = {}  # followed process → pid of its tracer, its pipe
        self._counts = Counts()
        self._untold = 0

    def follow(self, tid: int) -> bool:
        """Record the process a task is of, and all that it will create; False when that is so already. Raises
        MachineLacks when that is not allowed."""
        pid = _process(tid)
        if pid in self._tracers:
            return False
        ours, theirs = Pipe()
        child = os.fork()
        if child == 0:
            try:
                ours.close()
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                _trace(pid, theirs)
            except OSError:
                os._exit(1)  # nobody reads any more
            finally:
                os._exit(0)
        theirs.close()
        try:
            answer = ours.recv()
        except EOFError:
            answer = errno.EIO
        if answer:
            ours.close()
            raise MachineLacks(f"cannot be traced ({os.strerror(answer)})", where=f"process {pid}", remedy="end its "
                               "debugger, run as root, or set kernel.yama.ptrace_scope to 0")
        self._tracers[pid] = child, ours
        return True

    def settle(self) -> None:
        """Nothing: a process that is traced is so whole, at once."""

    def fds(self) -> list[int]:
        """Descriptors that are readable when there is something to take."""
        return [pipe.fileno() for _, pipe in self._tracers.values() if not pipe.closed]

    def batches(self, *, everything: bool) -> Iterator[pa.RecordBatch]:
        """Calls that have returned, as rows of RAW_SYSCALLS."""
        for _, pipe in self._tracers.values():
            try:
                while not pipe.closed and pipe.poll(None if everything else 0):
                    told = pipe.recv()
                    if isinstance(told, Counts):
                        for name in ("produced", "compat", "in_flight"):
                            setattr(self._counts, name, getattr(self._counts, name) + getattr(told, name))
                        pipe.close()
                    else:
                        yield _batch(told)
            except EOFError:  # it was killed
                pipe.close()
                self._untold += 1

    def stop(self) -> None:
        """Let the tracees go on untraced; what was recorded stays to be taken."""
        for child, pipe in self._tracers.values():
            if not pipe.closed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGTERM)

    def account(self, ledger: Ledger, stream: str, stored: int, not_written: int) -> None:
        """What became of every call that was entered."""
        lost = {"compat": self._counts.compat, "in_flight": self._counts.in_flight, "not_written": not_written}
        if self._untold:  # what it did not send is not known
            ledger.add(stream, "calls", stored=stored, lost=lost)
            ledger.add(f"{stream}/tracers", "processes", lost={"killed": self._untold})
        else:
            ledger.add(stream, "calls", stored=stored, lost=lost, produced=self._counts.produced)

    def close(self) -> None:
        """End the tracing. Idempotent."""
        for _, pipe in self._tracers.values():
            pipe.close()
        self._tracers.clear()


def _process(tid: int) -> int:
    """The process a task is of. Raises MachineLacks when it is gone."""
    try:
        for line in Path(f"/proc/{tid}/status").read_text(errors="replace").splitlines():
            if line.startswith("Tgid:"):
                return int(line.split()[1])
    except OSError as error:
        raise MachineLacks(f"cannot be followed ({error.strerror})", where=f"process {tid}",
                           remedy="its system calls are not recorded") from error
    return tid


def _batch(rows: list[Row]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True))
    return call_rows.batch(Calls(
        np.array(columns[0], np.int64), np.array(columns[1], np.int64), np.array(columns[2], np.int32),
        np.array(columns[3], np.int32), np.array(columns[4], np.int32), np.array(columns[5], np.uint64),
        np.array(columns[6], np.uint64).reshape(-1, 6), np.array(columns[7], np.int64)), columns[8])


__all__ = ["PtraceCalls"]
