# SPDX-License-Identifier: MIT
"""What arguments point to, refer to and mean, against strace on the same calls."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptweave.data.syscall_arguments import PARTS, SIGNATURES, Argument, Capture, Part, When
from ptweave.data.syscall_flags import SETS
from ptweave.data.syscall_table import NUMBERS
from ptweave.wrapper.syscalls import Options, Variant
from support.bpf import Row, needs_bpf, record
from support.compared import SHELL, make_tree, program, record_under_strace
from support.programs import compile_program
from support.strace import Call

pytestmark = [pytest.mark.root, needs_bpf]

KEPT = 256
_FILE = re.compile(r"\b(-?\d+|AT_FDCWD)<((?:\\x[0-9a-f]{2})*)>(\(deleted\))?")
_SHOWN_FLAGS = {"open", "prot", "mmap", "access", "at", "socket_type", "clone", "futex", "fcntl", "whence"}


def compared(name: str, folder: Path, cwd: Path, options: list[str], variant: Variant = Variant.AUTO
             ) -> Iterator[tuple[Row, Call]]:
    """Our rows beside strace's calls, thread by thread."""
    _, rows, calls = record_under_strace(program(name, folder), folder, cwd, options,
                                         Options(capture=KEPT, variant=variant))
    pairs = 0
    for tid in {call.tid for call in calls}:
        ours = [row for row in rows if row.tid == tid]
        theirs = [call for call in calls if call.tid == tid]
        for row, call in zip(ours, theirs, strict=True):
            assert row.name == call.name
            pairs += 1
            yield row, call
    assert pairs > 100


def strings(row: Row) -> list[bytes]:
    """What strace shows as strings of a row: paths, strings, words, buffers; of each as many bytes as it shows."""
    found: list[bytes] = []
    paths = list(row.paths)
    for at, argument in enumerate(SIGNATURES[NUMBERS[row.name]].arguments):
        found += _strings_of(row, at, argument, paths)
    return found


def _strings_of(row: Row, at: int, argument: Argument, paths: list[bytes | None]) -> list[bytes]:
    if argument.capture is Capture.PATH:
        path = paths.pop(0)
        return [] if path is None else [path]
    whole = row.captured(at)
    if whole is None:
        return []
    if argument.capture is Capture.WORDS:
        return whole.split(b"\0")[:-1]
    if argument.capture in (Capture.STRING, Capture.BUFFER):
        return [whole]
    if argument.capture is Capture.VECTOR:
        data = row.captured(at, Part.DATA) or b""
        lengths = [int.from_bytes(whole[i + 8:i + 16], "little") for i in range(0, len(whole), 16)]
        return [data[sum(lengths[:i]):sum(lengths[:i + 1])] for i in range(len(lengths))]
    return []


STRING_CALLS = {SIGNATURES[number].name for number in SIGNATURES
                if any(one.capture in (Capture.PATH, Capture.STRING, Capture.WORDS, Capture.BUFFER)
                       for one in SIGNATURES[number].arguments)
                and not any(one.capture is Capture.STRUCT for one in SIGNATURES[number].arguments)} | {"writev"}


@pytest.mark.parametrize("variant", [Variant.TYPED, Variant.RAW], ids=lambda variant: variant.value)
@pytest.mark.parametrize("name", ["shell", "git", "gcc"])
def test_paths_strings_words_and_buffers_are_strace_s(name: str, variant: Variant, tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    cwd = make_tree(tmp_path / "tree")
    for row, call in compared(name, tmp_path, cwd, ["-xx", "-v", "-s", str(KEPT)], variant):
        if row.name not in STRING_CALLS or row.result is None:
            continue
        ours = [one[:KEPT] for one in strings(row)]
        if row.name in ("read", "pread64") and not (row.result or 0) > 0:
            ours, theirs = [], [one for one in call.strings if one]
        else:
            theirs = call.strings
        assert ours == theirs, (row, call)
        seen[row.name] += len(ours)
    assert seen["read"] > 5 and seen["write"] > 0 and seen["execve"] > 20


@pytest.mark.parametrize("name", ["shell", "git", "python"])
def test_descriptors_refer_to_what_strace_says(name: str, tmp_path: Path) -> None:
    """-y: /proc/PID/fd at the time of the call."""
    seen: Counter[str] = Counter()
    cwd = make_tree(tmp_path / "tree")
    for row, call in compared(name, tmp_path, cwd, ["-xx", "-y"]):
        arguments, _, result = call.text.rpartition(")") if ")" in call.text else (call.text, "", "")
        del arguments, result
        signature = SIGNATURES[NUMBERS[row.name]].arguments
        fds = [at for at, one in enumerate(signature) if one.kind in ("fd", "dirfd")][:2]
        theirs = [(found[0], bytes.fromhex(found[1].replace("\\x", "")).decode(errors="backslashreplace"))
                  for found in _FILE.findall(call.text)]
        ours = []
        for at, file in zip(fds, row.files, strict=False):
            number = (row.args[at] & 0xFFFFFFFF ^ 1 << 31) - (1 << 31)
            if file is not None:
                ours.append(("AT_FDCWD" if number == -100 else str(number), file))
        if row.name in ("dup2", "dup3"):
            ours, theirs = ours[:1], theirs[:1]  # strace resolves the second at exit, we at enter
        if row.name in ("poll", "ppoll", "select", "pselect6", "pipe", "pipe2", "socketpair", "clone", "vfork"):
            continue  # descriptors in memory: strace names these, too
        assert ours == theirs, (row, call)
        seen["pipe" if any("pipe:" in file for _, file in ours) else "file"] += len(ours)
        if row.files[2] is not None and call.note.startswith("<"):
            name_ = bytes.fromhex(call.note[1:call.note.index(">")].replace("\\x", ""))
            assert row.files[2] == name_.decode(errors="backslashreplace"), (row, call)
            seen["result"] += 1
    assert seen["file"] > 50 and seen["pipe"] > 3 and seen["result"] > 20


@pytest.mark.parametrize("name", ["shell", "python"])
def test_flags_are_named_as_strace_names_them(name: str, tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    cwd = make_tree(tmp_path / "tree")
    for row, call in compared(name, tmp_path, cwd, ["-xx", "-v"]):
        words = set(re.findall(r"\b[A-Z][A-Z0-9_]{2,}\b", re.sub(r'"[^"]*"', "", call.text)))
        for at, one in enumerate(SIGNATURES[NUMBERS[row.name]].arguments):
            if one.kind.removeprefix("@") not in _SHOWN_FLAGS or row.name in ("clone3",):
                continue
            for flag in SETS[one.kind[1:]].text(row.args[at]).split("|"):
                if flag.startswith(("0", "FUTEX_", "F_OK")) and flag not in words:
                    continue  # strace joins FUTEX_WAIT_PRIVATE, and says 0 in other ways
                assert flag in words, (row, call, flag)
                seen[one.kind] += 1
    assert seen["@open"] > 20 and seen["@mmap"] > 20 and seen["@prot"] > 20 and seen["@at"] > 0


def test_every_kind_of_memory_is_captured_when_it_holds_what_matters(tmp_path: Path) -> None:
    """A program that makes calls with known memory, some of it in pages that are not there yet."""
    recorded = record([compile_program(tmp_path, "argument_calls")], tmp_path, Options(capture=64), cwd=tmp_path)
    assert recorded.status == 0
    (sent,) = recorded.of("sendmsg")
    assert sent.captured(1, Part.DATA) == b"onetwo"
    assert sent.captured(1, Part.CONTROL, When.ENTER) is not None
    (received,) = recorded.of("recvmsg")
    assert received.captured(1, Part.DATA, When.EXIT) == b"onetwo"
    paged = next(row for row in recorded.of("write") if row.args[2] == 11)
    assert paged.captured(1) == b"paged out\n\0"
    long = next(row for row in recorded.of("write") if row.args[2] == 1000)
    (kept,) = [one for one in long.captures if one["argument"] == 1]
    assert (kept["data"], kept["size"]) == (b"x" * 64, 1000)
    slept = recorded.of("nanosleep")[-1]
    assert slept.captured(0, when=When.ENTER) == bytes(8) + (1000).to_bytes(8, "little")
    polled = next(row for row in recorded.of("poll") if row.args[1] == 2)
    before, after = (polled.captured(0, when=when) or b"" for when in When)
    assert (before[6:8], after[6:8]) == (b"\0\0", b"\x01\0")
    bound = recorded.of("bind")[0].captured(1) or b""
    named = recorded.of("getsockname")[0].captured(1, when=When.EXIT) or b""
    assert bound[:2] == named[:2] == b"\x01\0" and b"socket-name" in bound and named == bound[:len(named)]
    (bad,) = [row for row in recorded.of("write") if row.args[1] == 1]
    assert bad.result == -14 and [one["data"] for one in bad.captures] == [None]
    assert recorded.ledger["syscalls/kernel/captures"].lost == {}
    assert recorded.ledger.check() == []


LOOKED_AT = 8  # PTW_MESSAGES


def ports(row: Row, messages: int) -> list[str]:
    """Of each message's address, its port (struct sockaddr_in); none of those without one."""
    found = [row.captured(1, Part.ADDRESS + PARTS * n) for n in range(messages)]
    return [str(int.from_bytes(one[2:4], "big")) for one in found if one]


@pytest.mark.parametrize("variant", [Variant.TYPED, Variant.RAW], ids=lambda variant: variant.value)
def test_the_data_and_addresses_of_several_messages_are_strace_s(variant: Variant, tmp_path: Path) -> None:
    _, rows, calls = record_under_strace([str(compile_program(tmp_path, "message_arrays"))], tmp_path, tmp_path,
                                         ["-xx", "-v", "-s", str(KEPT)], Options(capture=KEPT, variant=variant))
    names = ("sendmmsg", "recvmmsg")
    seen: Counter[str] = Counter()
    for row, call in zip([row for row in rows if row.name in names], [call for call in calls if call.name in names],
                         strict=True):
        _, *theirs = call.text.split("{msg_hdr=")
        for n, text in enumerate(theirs[:LOOKED_AT]):
            data = b"".join(bytes.fromhex(one.replace("\\x", "")) for one in re.findall(r'iov_base="([^"]*)"', text))
            assert (row.captured(1, Part.DATA + PARTS * n) or b"") == data, (n, row, call)
            seen[row.name] += bool(data)
        found = re.findall(r"htons\((\d+)\)", call.text)
        assert ports(row, len(theirs)) == found
        seen["ports"] += len(found)
    assert seen == {"sendmmsg": 3 + 1 + LOOKED_AT, "recvmmsg": 3 + 1 + LOOKED_AT, "ports": 6}


@pytest.mark.parametrize("kept", [4, 64])
def test_several_messages_hold_what_the_program_knows_and_what_is_left_out_is_counted(kept: int, tmp_path: Path
                                                                                        ) -> None:
    out = tmp_path / "out"
    recorded = record([compile_program(tmp_path, "message_arrays")], tmp_path, Options(capture=kept), cwd=tmp_path,
                      stdout=out)
    assert recorded.status == 0
    sender, receiver = out.read_text().split()
    known = [[b"first", b"second message", b"paged out"], [b"good"], [f"many{n}".encode() for n in range(LOOKED_AT)]]
    for name in ("sendmmsg", "recvmmsg"):
        for row, messages in zip(recorded.of(name), known, strict=False):
            parts = [next(one for one in row.captures if one["part"] == Part.DATA + PARTS * n)
                     for n in range(len(messages))]
            assert [(one["data"], one["size"]) for one in parts] == [(one[:kept], len(one)) for one in messages]
            more = {one["part"]: one["data"] for one in row.captures if one["part"] >= PARTS * len(messages)}
            assert more == ({PARTS + Part.DATA: None} if (name, messages) == ("sendmmsg", known[1]) else {})
    assert ports(recorded.of("sendmmsg")[0], 3) == [receiver] * 3
    assert ports(recorded.of("recvmmsg")[0], 3) == [sender] * 3
    control = recorded.of("sendmmsg")[1].captured(1, Part.CONTROL) or b""
    assert control[:16] == b"".join(number.to_bytes(size, "little") for number, size in ((20, 8), (1, 4), (1, 4)))
    # eleven messages were sent, and eleven received
    assert recorded.ledger["syscalls/kernel/messages"].lost == {"not_looked_at": 2 * (11 - LOOKED_AT)}
    assert recorded.ledger["syscalls/kernel/captures"].lost == {}  # nobody could read the one that is null
    assert recorded.ledger.check() == []


def test_a_call_stack_begins_with_the_call_s_address(tmp_path: Path) -> None:
    recorded = record(["/bin/sh", "-c", SHELL], tmp_path, Options(frames=16))
    stacks = [(row, one["data"]) for row in recorded.rows for one in row.captures if one["argument"] == 6]
    assert len(stacks) > 100
    for row, data in stacks:
        assert int.from_bytes(data[:8], "little") == row.ip


def shapes(rows: list[Row]) -> Counter[tuple[object, ...]]:
    """What is kept of the program's calls, without what differs from run to run; call stacks left out. What its process
    did before it was the program is the recorder's (Python's seeding after a fork), seen or not as it comes."""
    began = next(index for index, row in enumerate(rows) if row.name == "execve")
    return Counter((row.name, one["argument"], one["kind"], one["part"], one["when"], one["size"],
                    None if one["data"] is None else len(one["data"]))
                   for row in rows[began:] for one in row.captures if one["argument"] < 6)


def test_captures_beside_the_task_s_state_are_those_of_a_text_of_their_own(tmp_path: Path) -> None:
    """With call stacks no call is quick; each kind of capture must come out the same."""
    kept = {}
    for name, options in {"quick": Options(capture=64), "texts": Options(capture=64, frames=1),
                          "short": Options(capture=63)}.items():
        folder = tmp_path / name
        folder.mkdir()
        kept[name] = shapes(record([compile_program(folder, "argument_calls")], folder, options, cwd=folder).rows)
    assert len(kept["quick"]) > 20
    assert kept["quick"] == kept["texts"]
    assert kept["quick"] != kept["short"]  # the control
