# SPDX-License-Identifier: MIT
"""The target: what a command is, whether it can be traced, and how it is started and held at a gate."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import stat
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from ptweave.data import BadInput, MachineLacks

ELF_MAGIC = b"\x7fELF"
ELFCLASS64 = 2
EM_X86_64 = 62
PT_INTERP = 3
SCRIPT_DEPTH = 4  # interpreters of interpreters the kernel follows (fs/exec.c: BINPRM limit)
NAME_MAX = 255
_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = (1 << 64) - 1


class Linkage(Enum):
    """How a program gets its libraries, which decides whether LD_PRELOAD reaches it."""

    DYNAMIC = auto()
    STATIC = auto()


@dataclass(frozen=True)
class Target:
    """A command that can be traced: its words, the file that runs, and how that is linked."""

    argv: tuple[str, ...]
    executable: Path  # the ELF file the kernel will run (the interpreter, for a script)
    linkage: Linkage


def _resolve(name: str) -> Path:
    if not name:
        raise BadInput("the command is empty", remedy="give a program after --")
    if "/" in name:
        path = Path(name)
        if not path.exists():
            raise BadInput("does not exist", where=name, remedy="check the command after --")
    else:
        found = shutil.which(name)
        if found is None:
            raise BadInput("command not found", where=name, remedy="check its name and PATH")
        path = Path(found)
    if path.is_dir():
        raise BadInput("is a directory, not a program", where=name, remedy="name the program in it")
    if not os.access(path, os.X_OK):
        raise BadInput("is not executable", where=name, remedy="chmod +x it, or run it through its interpreter")
    return path


def _interpreter(path: Path, head: bytes) -> Path:
    words = head[2:].split(b"\n", 1)[0].split()
    if not words:
        raise BadInput("has no interpreter after #!", where=str(path), remedy="name one in its first line")
    return Path(os.fsdecode(words[0]))


def _linkage(path: Path, head: bytes) -> Linkage:
    """PT_INTERP says that ld.so runs first (System V ABI, program headers)."""
    offset, = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    with path.open("rb") as file:
        file.seek(offset)
        table = file.read(size * count)
    types = [struct.unpack_from("<I", table, at)[0] for at in range(0, len(table) - 3, size or 56)]
    return Linkage.DYNAMIC if PT_INTERP in types else Linkage.STATIC


def interpreter_of(path: Path) -> Path | None:
    """The loader an ELF program asks for; None when it is static."""
    with path.open("rb") as file:
        head = file.read(64)
        if len(head) < 64 or not head.startswith(ELF_MAGIC):
            return None
        offset, = struct.unpack_from("<Q", head, 32)
        size, count = struct.unpack_from("<HH", head, 54)
        for index in range(count):
            file.seek(offset + index * size)
            entry = file.read(56)
            if len(entry) == 56 and struct.unpack_from("<I", entry)[0] == PT_INTERP:
                at, length = struct.unpack_from("<8xQ16xQ", entry)
                file.seek(at)
                return Path(os.fsdecode(file.read(min(length, os.pathconf("/", "PC_PATH_MAX"))).rstrip(b"\0")))
    return None


def examine(argv: Sequence[str]) -> Target:
    """Find out what would run.

    Raises BadInput for a command that is missing, a directory, not executable or no program, and MachineLacks
    for a program that no engine can trace (another architecture, setuid).
    """
    path = _resolve(argv[0])
    for _ in range(SCRIPT_DEPTH):
        try:
            with path.open("rb") as file:
                head = file.read(NAME_MAX + 1)
            mode = path.stat().st_mode
        except OSError as error:
            raise BadInput(f"cannot be read ({error.strerror})", where=str(path),
                           remedy="the engine must read the program it traces") from error
        if mode & (stat.S_ISUID | stat.S_ISGID) and mode & stat.S_IXGRP | mode & stat.S_ISUID:
            raise MachineLacks("is setuid or setgid and cannot be traced with the privileges it would get",
                               where=str(path), remedy="trace a copy without the bit, as the user it would run as")
        if head.startswith(b"#!"):
            path = _interpreter(path, head)
            if not path.exists():
                raise BadInput(f"its interpreter {path} does not exist", where=argv[0],
                               remedy="install it, or correct the first line")
            continue
        if not head.startswith(ELF_MAGIC) or len(head) < 64:
            raise BadInput("is not a program (neither ELF nor #!)", where=str(path),
                           remedy="run it through its interpreter, such as sh")
        machine, = struct.unpack_from("<H", head, 18)
        if head[4] != ELFCLASS64 or machine != EM_X86_64:
            raise MachineLacks("is not an x86-64 program (32-bit or of another processor)", where=str(path),
                               remedy="use a 64-bit build: the soft engine runs no other")
        return Target(tuple(argv), path, _linkage(path, head))
    raise BadInput("names interpreters that are scripts, too deep", where=argv[0],
                   remedy="name a program as the interpreter")


class Spawn:
    """A forked child, held at a gate before exec so that every recorder can be told its pid first."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], blocked: set[signal.Signals], *,
                 traceable: bool = False) -> None:
        """`traceable`: another process of ours may trace it, whatever kernel.yama.ptrace_scope says of relatives."""
        libc = ctypes.CDLL(None) if traceable else None
        gate_read, self._gate = os.pipe()  # both ends close on exec
        self._failure, failure_write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            if libc is not None:
                libc.prctl(_PR_SET_PTRACER, ctypes.c_ulong(_PR_SET_PTRACER_ANY), 0, 0, 0)
            self._child(argv, environment, blocked, gate_read, failure_write)
        os.close(gate_read)
        os.close(failure_write)

    def _child(self, argv: Sequence[str], environment: Mapping[str, str], blocked: set[signal.Signals],
               gate: int, failure: int) -> None:
        """In the child: wait at the gate, then exec with the signal state ptweave was started with."""
        try:
            os.close(self._gate)
            if os.read(gate, 1) != b"g":
                os._exit(0)
            for sig in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these two
                signal.signal(sig, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
            os.execvpe(argv[0], list(argv), dict(environment))
        except OSError as error:
            os.write(failure, struct.pack("<i", error.errno or 0))
        finally:
            os._exit(127)

    def release(self) -> None:
        """Open the gate, and wait until exec has happened. Raises MachineLacks when it failed."""
        os.write(self._gate, b"g")
        os.close(self._gate)
        raw = os.read(self._failure, 4)
        os.close(self._failure)
        if len(raw) == 4:
            os.waitpid(self.pid, 0)
            reason = os.strerror(struct.unpack("<i", raw)[0])
            raise MachineLacks(f"the engine cannot be started ({reason})", remedy="run ptweave doctor")

    def cancel(self) -> None:
        """Give the child up before it ran anything."""
        os.close(self._gate)
        os.close(self._failure)
        os.waitpid(self.pid, 0)
