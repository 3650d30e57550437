# SPDX-License-Identifier: MIT
"""System calls as text, in the manner of strace: `openat(AT_FDCWD</tmp>, "file", O_RDONLY) = 3</tmp/file>`.

Memory that was captured is shown decoded where its type is known; of what was cut, `...` follows. Text from the program
has no byte but printable ASCII: the rest is escaped as in C.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ptweave.data import syscall_structures as structures
from ptweave.data.syscall_arguments import PARTS, SIGNATURES, Argument, Capture, Part, When
from ptweave.data.syscall_flags import SETS, signal_name
from ptweave.data.syscall_table import errno_name, name_of

AT_FDCWD = -100
_ESCAPES = {0x22: '\\"', 0x5C: "\\\\", 0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t"}
_SIGNED = {"d": 32, "l": 64, "pid": 32, "fd": 32, "dirfd": 32}
_CLONE_SIGNAL = 0xFF


@dataclass(frozen=True)
class Captured:
    """What was kept of the memory of an argument: `data` None when it could not be read; `size` what it has."""

    argument: int
    kind: int
    part: int
    when: int
    size: int
    data: bytes | None


@dataclass(frozen=True)
class Call:
    """A call to be shown. `files`: what the first two descriptor arguments and the result refer to."""

    number: int
    args: Sequence[int]
    result: int | None = None
    paths: Sequence[bytes | str | None] = ()
    files: Sequence[str | None] = ()
    captures: Sequence[Captured] = field(default=())


def quoted(data: bytes, *, more: bool = False) -> str:
    """A C string literal; `...` behind it when there is more."""
    text = "".join(_ESCAPES.get(byte) or (chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}") for byte in data)
    return f'"{text}"{"..." if more else ""}'


def printable(text: str) -> str:
    """Text of a path without anything a terminal could take for a command."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _descriptor(value: int, file: str | None) -> str:
    number = _signed(value, 32)
    word = "AT_FDCWD" if number == AT_FDCWD else str(number)
    return f"{word}<{printable(file)}>" if file else word


def _flags(name: str, value: int) -> str:
    if name == "clone" and value & _CLONE_SIGNAL:
        rest = value & ~_CLONE_SIGNAL
        return (SETS[name].text(rest) + "|" if rest else "") + signal_name(value & _CLONE_SIGNAL)
    return SETS[name].text(value)


def _value(argument: Argument, value: int) -> str:
    kind = argument.kind
    if kind.startswith("@"):
        return _flags(kind[1:], value)
    if kind in _SIGNED:
        return str(_signed(value, _SIGNED[kind]))
    if kind == "u":
        return str(value)
    if kind == "o":
        return f"0{value & 0o177777:o}"
    if kind == "sig":
        return signal_name(_signed(value, 32))
    if kind == "uid":
        return str(_signed(value, 32)) if value & 0xFFFFFFFF == 0xFFFFFFFF else str(value & 0xFFFFFFFF)
    return "NULL" if not value and argument.capture else f"{value:#x}" if value else "0"


def _string(capture: Captured) -> str:
    assert capture.data is not None
    return quoted(capture.data, more=capture.size > len(capture.data))


def _words(capture: Captured) -> str:
    assert capture.data is not None
    words = capture.data.split(b"\0")
    words = words[:-1] if not words[-1] else words
    return "[" + ", ".join(quoted(word) for word in words) + (", ..." if capture.size > len(capture.data) else "") + "]"


def _vector(parts: Mapping[int, Captured]) -> str:
    """A vector: its buffers' contents, cut where the data that was kept ends."""
    array, data = parts.get(Part.ITSELF), parts.get(Part.DATA)
    if array is None or array.data is None:
        return ""
    left = data.data if data is not None and data.data is not None else b""
    shown = []
    for length in structures.vector_lengths(array.data):
        piece, left = left[:length], left[length:]
        shown.append(f"{{iov_base={quoted(piece, more=len(piece) < length)}, iov_len={length}}}")
    return "[" + ", ".join(shown) + (", ..." if array.size > len(array.data) else "") + "]"


def _message(parts: Mapping[int, Captured]) -> str:
    header = parts.get(Part.ITSELF)
    return "" if header is None or header.data is None else _header(header.data, parts)


def _messages(parts: Mapping[int, Captured], *, lengths: bool) -> str:
    """An array of messages, as many as were looked at; with `lengths` what the call says of how much each got."""
    array = parts.get(Part.ITSELF)
    if array is None or array.data is None:
        return ""
    shown = []
    for at, (header, length) in enumerate(structures.messages(array.data)):
        mine: dict[int, Captured] = {
            part: parts[part + PARTS * at] for part in Part if part and part + PARTS * at in parts}
        shown.append(f"{{msg_hdr={_header(header, mine)}{f', msg_len={length}' if lengths else ''}}}")
    return "[" + ", ".join(shown) + (", ..." if array.size > len(array.data) else "") + "]"


def _header(header: bytes, parts: Mapping[int, Captured]) -> str:
    """A message: its header, and what was kept of what belongs to it."""
    address, data, control = (parts.get(part) for part in (Part.ADDRESS, Part.DATA, Part.CONTROL))
    shown = []
    if address is not None and address.data:
        shown.append(f"msg_name={structures.text('sockaddr', address.data, address.size)}")
    if data is not None and data.data is not None:
        shown.append(f"data={quoted(data.data, more=data.size > len(data.data))}")
    if control is not None and control.data is not None:
        shown.append(f"msg_control={structures.control(control.data)}")
    flags = structures.message_flags(header)
    return "{" + ", ".join([*shown, f"msg_flags={SETS['msg'].text(flags) if flags else '0'}"]) + "}"


def _memory(argument: Argument, parts: Mapping[int, Captured], result: int | None) -> str:
    """What an argument points to; empty when nothing was kept."""
    one = parts.get(Part.ITSELF)
    if one is None or one.data is None:
        return ""
    if argument.capture is Capture.VECTOR:
        return _vector(parts)
    if argument.capture is Capture.MESSAGE:
        return _message(parts)
    if argument.capture is Capture.MESSAGES:
        return _messages(parts, lengths=argument.at_exit)
    if argument.capture is Capture.WORDS:
        return _words(one)
    if argument.capture in (Capture.STRING, Capture.BUFFER):
        return _string(one)
    if argument.kind == "i32" and argument.name == "status" and result:
        return structures.wait_status(one.data)
    return structures.text(argument.kind, one.data, one.size)


class _Arguments:
    """The arguments of one call, one after the other."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._paths = list(call.paths)
        self._files = list(call.files[:2])
        self._parts: dict[tuple[int, int], dict[int, Captured]] = {}
        for one in call.captures:
            self._parts.setdefault((one.argument, one.when), {})[one.part] = one

    def text(self, at: int, argument: Argument) -> str:
        value = int(self._call.args[at]) if at < len(self._call.args) else 0
        if argument.kind in ("fd", "dirfd"):
            return _descriptor(value, self._files.pop(0) if self._files else None)
        if argument.capture is Capture.PATH:
            path = self._paths.pop(0) if self._paths else None
            return self._path(path, value)
        if not argument.capture or not value:
            return _value(argument, value)
        texts = [_memory(argument, self._parts.get((at, when), {}), self._call.result) for when in When]
        before, after = texts
        if before and after and before != after:
            return f"{before} => {after}"
        return after or before or f"{value:#x}"

    @staticmethod
    def _path(path: bytes | str | None, value: int) -> str:
        if path is None:
            return f"{value:#x}" if value else "NULL"
        return quoted(path.encode(errors="surrogateescape") if isinstance(path, str) else path)


def arguments(call: Call) -> list[str]:
    """The arguments of a call as text; those of a number that is in no table in hexadecimal."""
    signature = SIGNATURES.get(call.number)
    if signature is None:
        return [f"{int(value):#x}" for value in call.args]
    shown = _Arguments(call)
    return [shown.text(at, one) for at, one in enumerate(signature.arguments)]


_RESULTS: dict[str, Callable[[int], str]] = {
    name: lambda value: f"{value & (1 << 64) - 1:#x}" for name in ("brk", "mmap", "mremap", "shmat")}


def result(call: Call) -> str:
    """What it returned: `3</tmp/file>`, `-1 ENOENT`, `?` when it did not."""
    if call.result is None:
        return "?"
    error = errno_name(call.result)
    if error is not None:
        return f"-1 {error}"
    file = call.files[2] if len(call.files) > 2 else None
    if file:
        return f"{call.result}<{printable(file)}>"
    return _RESULTS.get(name_of(call.number), str)(call.result)


def line(call: Call) -> str:
    """The whole call."""
    return f"{name_of(call.number)}({', '.join(arguments(call))}) = {result(call)}"
