# SPDX-License-Identifier: MIT
"""The target: what a command is, whether it can be traced, and how it is started and held at a gate."""

from __future__ import annotations

import contextlib
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
from ptweave.wrapper.signals import SignalRelay

ELF_MAGIC = b"\x7fELF"
ELFCLASS64 = 2
EM_X86_64 = 62
PT_INTERP = 3
SCRIPT_DEPTH = 4  # interpreters of interpreters the kernel follows (fs/exec.c: BINPRM limit)
NAME_MAX = 255
_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = (1 << 64) - 1
_COMMAND = struct.Struct("<3Q")


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


def _has_capabilities(path: Path) -> bool:
    try:
        return bool(os.getxattr(path, "security.capability"))
    except OSError:  # it has none, or its file system knows none
        return False


def examine(argv: Sequence[str]) -> Target:
    """Find out what would run.

    Raises BadInput for a command that is missing, a directory, not executable or no program, and MachineLacks
    for a program that no engine can trace (another architecture, setuid, capabilities of its file).
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
        if _has_capabilities(path):
            raise MachineLacks("has file capabilities and cannot be traced with the privileges it would get",
                               where=str(path), remedy="trace a copy (which has none), as a user who has them")
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


def _send(gate: int, path: str, argv: Sequence[str], environment: Mapping[str, str]) -> None:
    """A command through the gate: its sizes (three numbers of 64 bits: all bytes; file and words; variables), then its
    file, each word, name and value, with a NUL behind it."""
    texts = [path, *argv, *(text for variable in environment.items() for text in variable)]
    body = b"".join(os.fsencode(text) + b"\0" for text in texts)
    with open(gate, "wb", closefd=False) as file:
        file.write(_COMMAND.pack(len(body), 1 + len(argv), len(environment)) + body)


def _received(gate: int) -> tuple[list[str], dict[str, str]] | None:
    """What `_send` sent; None when the gate was closed, or whoever sends ended, before it was whole."""
    with open(gate, "rb", closefd=False) as file:
        head = file.read(_COMMAND.size)
        if len(head) < _COMMAND.size:
            return None
        size, words, variables = _COMMAND.unpack(head)
        body = file.read(size)
    if len(body) < size:
        return None
    texts = [os.fsdecode(text) for text in body.split(b"\0")[:-1]]
    pairs = texts[words:words + 2 * variables]
    return texts[:words], dict(zip(pairs[::2], pairs[1::2], strict=True))


class Spawn:
    """A forked child, held at a gate before exec so that every recorder can be told its pid first. From there to the
    program it makes one system call: it is recorded."""

    def __init__(self, blocked: set[signal.Signals], *, traceable: bool = False) -> None:
        """`blocked`: signals held back now that the command is to get. `traceable`: another process of ours may trace
        it, whatever kernel.yama.ptrace_scope says of relatives."""
        libc = ctypes.CDLL(None) if traceable else None
        gate_read, self._gate = os.pipe()  # both ends close on exec
        self._failure, failure_write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            if libc is not None:
                libc.prctl(_PR_SET_PTRACER, ctypes.c_ulong(_PR_SET_PTRACER_ANY), 0, 0, 0)
            self._child(blocked, gate_read, failure_write)
        os.close(gate_read)
        os.close(failure_write)

    def _child(self, blocked: set[signal.Signals], gate: int, failure: int) -> None:
        """In the child: wait at the gate, then exec, with the signal state ptweave was started with."""
        try:
            os.close(self._gate)
            ours = {sig for sig in blocked if callable(signal.getsignal(sig))}
            for sig in ours | {signal.SIGPIPE, signal.SIGXFSZ}:  # Python ignores these two
                signal.signal(sig, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)  # what comes at the gate is the command's
            command = _received(gate)
            if command is None:
                os._exit(0)
            (path, *argv), environment = command
            os.execve(path, argv, environment)
        except OSError as error:
            os.write(failure, struct.pack("<i", error.errno or 0))
        finally:
            os._exit(127)

    def release(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        """Open the gate, and wait until exec of this command has happened. Raises MachineLacks when it failed."""
        path = argv[0] if "/" in argv[0] else shutil.which(argv[0], path=environment.get("PATH")) or argv[0]
        with contextlib.suppress(BrokenPipeError):  # ended at the gate: its status tells by what, as a command's does
            _send(self._gate, path, argv, environment)
        raw = os.read(self._failure, 4)
        self._close()
        if len(raw) == 4:
            os.waitpid(self.pid, 0)
            reason = os.strerror(struct.unpack("<i", raw)[0])
            raise MachineLacks(f"the engine cannot be started ({reason})", remedy="run ptweave doctor")

    def cancel(self) -> None:
        """Give the child up if it ran nothing yet."""
        if self._gate >= 0:
            self._close()
            os.waitpid(self.pid, 0)

    def _close(self) -> None:
        os.close(self._gate)
        os.close(self._failure)
        self._gate = -1


@dataclass
class Held:
    """A child that waits at its gate to become the target, forked before privileges were given up: an exec that gained
    them would leave the kernel with a process that may not be looked at. `relay` is entered."""

    child: Spawn
    relay: SignalRelay
