# SPDX-License-Identifier: MIT
"""System calls as text, on captures made here."""

from __future__ import annotations

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptweave.data.syscall_arguments import PARTS, SIGNATURES, STRUCTURES, Capture, Part, When
from ptweave.data.syscall_structures import text, wait_status
from ptweave.data.syscall_table import NUMBERS
from ptweave.data.syscall_text import Call, Captured, arguments, line, printable, quoted


def capture(argument: int, data: bytes | None, *, size: int | None = None, when: When = When.ENTER,
            part: int = Part.ITSELF, kind: Capture = Capture.STRUCT) -> Captured:
    return Captured(argument, kind, part, when, size if size is not None else len(data or b""), data)


def test_paths_flags_and_files_are_named() -> None:
    call = Call(NUMBERS["openat"], [2**64 - 100, 0x1000, 0o1101, 0o644, 0, 0], 3, [b"na\nme"],
                ["/tmp", None, "/tmp/na"])
    assert line(call) == 'openat(AT_FDCWD</tmp>, "na\\nme", O_WRONLY|O_CREAT|O_TRUNC, 0644) = 3</tmp/na>'


def test_an_error_has_its_name_and_a_call_without_end_a_question_mark() -> None:
    assert line(Call(NUMBERS["close"], [9], -9)) == "close(9) = -1 EBADF"
    assert line(Call(NUMBERS["exit_group"], [1])) == "exit_group(1) = ?"


def test_buffers_are_cut_where_what_was_kept_ends() -> None:
    call = Call(NUMBERS["read"], [3, 0x1000, 100], 100, captures=[capture(1, b'a"\x00', size=100, when=When.EXIT)])
    assert line(call) == 'read(3, "a\\"\\x00"..., 100) = 100'


def test_memory_that_could_not_be_read_is_an_address() -> None:
    assert arguments(Call(NUMBERS["read"], [3, 0x1000, 9], 9, captures=[capture(1, None)])) == ["3", "0x1000", "9"]
    assert arguments(Call(NUMBERS["stat"], [0, 0], -14, [None])) == ["NULL", "NULL"]


def test_vectors_show_what_each_buffer_held() -> None:
    vector = struct.pack("<6Q", 0x10, 3, 0x20, 0, 0x30, 10)
    call = Call(NUMBERS["writev"], [1, 0x1000, 3], 13, captures=[
        capture(1, vector), capture(1, b"abcde", size=13, part=Part.DATA)])
    assert arguments(call)[1] == ('[{iov_base="abc", iov_len=3}, {iov_base="", iov_len=0}, '
                                  '{iov_base="de"..., iov_len=10}]')


def test_several_messages_show_what_each_held() -> None:
    array = struct.pack("<QIIQQQQIIII", 0x10, 2, 0, 0x20, 1, 0, 0, 0, 0, 5, 0) + struct.pack(
        "<QIIQQQQIIII", 0, 0, 0, 0x30, 1, 0, 0, 0x20, 0, 9, 0)
    captures = [capture(1, array, size=192), capture(1, b"abc", size=5, part=Part.DATA),
                capture(1, b"\2\0", part=Part.ADDRESS), capture(1, b"other", size=9, part=PARTS + Part.DATA)]
    first, second = 'data="abc"..., msg_flags=0', 'data="other"..., msg_flags=MSG_TRUNC'
    sent = arguments(Call(NUMBERS["sendmmsg"], [3, 0x1000, 3, 0], 3, captures=captures))[1]
    address = sent[sent.index("msg_name"):sent.index("data")]
    assert sent == f"[{{msg_hdr={{{address}{first}}}}}, {{msg_hdr={{{second}}}}}, ...]"
    received = [Captured(one.argument, one.kind, one.part, When.EXIT, one.size, one.data) for one in captures]
    assert arguments(Call(NUMBERS["recvmmsg"], [3, 0x1000, 3, 0, 0], 3, captures=received))[1] == (
        f"[{{msg_hdr={{{address}{first}}}, msg_len=5}}, {{msg_hdr={{{second}}}, msg_len=9}}, ...]")


def test_words_are_listed() -> None:
    call = Call(NUMBERS["execve"], [1, 2, 3], 0, ["/bin/ls"], captures=[
        capture(1, b"ls\0-l\0"), capture(2, b"A=1\0", size=9)])
    assert line(call) == 'execve("/bin/ls", ["ls", "-l"], ["A=1", ...]) = 0'


@pytest.mark.parametrize(("kind", "data", "shown"), [
    ("sockaddr", struct.pack("<H", 2) + struct.pack(">H", 80) + bytes([127, 0, 0, 1]) + bytes(8),
     "{sa_family=AF_INET, sin_port=htons(80), sin_addr=127.0.0.1}"),
    ("sockaddr", struct.pack("<H", 10) + struct.pack(">HI", 443, 0) + socket.inet_pton(socket.AF_INET6, "::1"),
     "{sa_family=AF_INET6, sin6_port=htons(443), sin6_addr=::1}"),
    ("sockaddr", struct.pack("<H", 1) + b"/run/x\0junk", '{sa_family=AF_UNIX, sun_path="/run/x"}'),
    ("sockaddr", struct.pack("<H", 1) + b"\0abs", '{sa_family=AF_UNIX, sun_path=@"abs"}'),
    ("sigset", struct.pack("<Q", 1 << 1 | 1 << 14), "[INT TERM]"),
    ("sigset", struct.pack("<Q", 2**64 - 1 - (1 << 8)), "~[KILL]"),
    ("pollfd", struct.pack("<ihhihh", 3, 1, 1, 4, 4, 0), "[{fd=3, events=POLLIN, revents=POLLIN}, "
     "{fd=4, events=POLLOUT}]"),
    ("timespec", struct.pack("<qq", 1, -5), "{tv_sec=1, tv_nsec=-5}"),
    ("rlimit", struct.pack("<QQ", 5, 2**64 - 1), "{rlim_cur=5, rlim_max=RLIM_INFINITY}"),
    ("pair", struct.pack("<ii", 3, 4), "[3, 4]"),
    ("fd_set", bytes([0b101, 1]), "[0 2 8]"),
])
def test_structures_are_decoded(kind: str, data: bytes, shown: str) -> None:
    assert text(kind, data, len(data)) == shown


@given(st.sampled_from(sorted({*STRUCTURES, "bytes", "none"})), st.binary(max_size=400), st.integers(0, 2**40))
def test_whatever_a_structure_holds_it_becomes_one_line_of_printable_text(kind: str, data: bytes, size: int) -> None:
    shown = text(kind, data, size)
    assert shown.isprintable()


@given(st.sampled_from(sorted(SIGNATURES)), st.lists(st.integers(0, 2**64 - 1), min_size=6, max_size=6),
       st.one_of(st.none(), st.integers(-2**63, 2**63 - 1)), st.binary(max_size=100), st.integers(0, 3),
       st.sampled_from(list(When)), st.text())
def test_any_call_becomes_one_line_of_printable_text(number: int, args: list[int], result: int | None, data: bytes,
                                                     part: int, when: When, name: str) -> None:
    captures = [Captured(at, Capture.STRUCT, part, when, 1000, data) for at in range(7)]
    captures += [Captured(at, Capture.STRUCT, 0, when, 1000, data) for at in range(7)]
    shown = line(Call(number, args, result, [data, name], [name, name, name], captures))
    assert shown.isprintable(), shown


@pytest.mark.parametrize("value, shown", [
    (b"\0\1\0\0", "[WIFEXITED && WEXITSTATUS == 1]"),
    (b"\x8b\0\0\0", "[WIFSIGNALED && WTERMSIG == SIGSEGV && WCOREDUMP]"),
    (b"\xff\xff\0\0", "[WIFCONTINUED]"), (b"\xff\xff\xff\xff", "[0xffffffff]")])
def test_a_wait_status_is_shown_whatever_its_bytes_are(value: bytes, shown: str) -> None:
    assert wait_status(value) == shown


def test_nothing_of_the_program_reaches_a_terminal_as_it_is() -> None:
    assert quoted(b"\x1b[2J\xff") == '"\\x1b[2J\\xff"'
    assert printable("a\x1b]0;b\x07\u202e") == "a\\x1b]0;b\\x07\\u202e"
