# SPDX-License-Identifier: MIT
"""Python's view of the engine's files is C's; pending branches come out as they went in; nothing is believed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptweave.wrapper.spool_format import (
    BUFFER,
    PAGE,
    PROCESS,
    RECORD,
    THREAD,
    Kind,
    ProcessState,
    ThreadState,
    encode_tnt,
    parse_records,
    read_at,
)
from support.spools import FakeProcess, FakeStream, pending

ENGINE = Path(__file__).resolve().parents[2] / "wrapper/engine"

PROCESS_FIELDS = ("magic", "pid", "tid", "parent_pid", "parent_tid", "began", "ended", "tsc_begin", "tsc_end",
                  "records", "code", "records_lost", "code_lost", "streams", "streams_lost", "children_lost", "exe")
THREAD_FIELDS = ("magic", "stream", "tid", "creator", "state", "tsc_begin", "tsc_end", "end", "lost", "syscalls",
                 "syscalls_lost", "instructions", "hash", "hold", "logging", "buffer", "encoder.tnt", "encoder.pos",
                 "encoder.tnt_pos", "encoder.ret_at", "encoder.start", "encoder.window")
KINDS = ("MAP", "CODE", "UNMAP", "SLICE", "THREAD", "THREAD_EXIT", "LOST", "COMM", "UNTRACED")


def python_offsets(form: str, fields: tuple[str, ...]) -> list[int]:
    """Offset of each item of a struct format."""
    import re
    import struct

    offsets, done = [], "<"
    for count, code in re.findall(r"(\d*)([a-zA-Z])", form):
        repeat = 1 if code in "sx" else int(count or 1)
        for _ in range(repeat):
            if code != "x":
                offsets.append(struct.calcsize(done))
            done += (count + code) if code in "sx" else code
    assert len(offsets) == len(fields)
    return offsets


def test_layouts_are_those_of_the_engine(tmp_path: Path) -> None:
    source = tmp_path / "offsets.c"
    lines = [f'printf("%zu\\n", offsetof(struct ptsoft_process, {name}));' for name in PROCESS_FIELDS]
    lines += [f'printf("%zu\\n", offsetof(struct ptsoft_thread, {name}));' for name in THREAD_FIELDS]
    lines += [f'printf("%d\\n", PTSOFT_{name});' for name in KINDS]
    lines += ['printf("%d\\n%d\\n%zu\\n", PTSOFT_PAGE, PTSOFT_BUFFER, sizeof(struct ptsoft_record));']
    source.write_text('#include <stdio.h>\n#include <stddef.h>\n#include "format.h"\nint main(void) {\n'
                      + "\n".join(lines) + "\nreturn 0; }\n")
    subprocess.run(["gcc", f"-I{ENGINE}", "-o", tmp_path / "offsets", source], check=True)
    found = [int(line) for line in subprocess.run([tmp_path / "offsets"], capture_output=True, text=True,
                                                  check=True).stdout.split()]
    assert found == [*python_offsets(PROCESS.format, PROCESS_FIELDS), *python_offsets(THREAD.format, THREAD_FIELDS),
                     *(Kind[name] for name in KINDS), PAGE, BUFFER, RECORD.size]


def decode_tnt(packets: bytes) -> str:
    """The branches of short TNT packets."""
    bits = ""
    for packet in packets:
        assert packet & 1 == 0 and packet > 2
        bits += f"{packet >> 1:b}"[1:]
    return bits


@given(st.text("01", max_size=47))
def test_pending_branches_come_out_as_they_went_in(bits: str) -> None:
    assert decode_tnt(encode_tnt(pending(bits))) == bits


@given(st.integers(0, (1 << 64) - 1))
def test_any_word_is_a_few_packets_or_none(word: int) -> None:
    assert len(encode_tnt(word)) <= 8


@given(st.binary(max_size=400))
def test_any_bytes_are_whole_records_or_none(data: bytes) -> None:
    ends = [end for _, end in parse_records(data)]
    assert ends == sorted(ends) and all(end <= len(data) for end in ends)


@given(st.binary(max_size=2 * THREAD.size))
def test_any_page_is_a_state_or_none(data: bytes) -> None:
    data = data.ljust(PAGE, b"\0")
    thread = ThreadState.parse(b"PWTPSOT1" + data[8:])
    assert thread is not None
    assert 0 <= thread.buffered <= BUFFER
    assert len(thread.pending) <= 8
    assert ThreadState.parse(b"PWTPSOT2" + data[8:]) is None
    process = ProcessState.parse(b"PWTPSOP1" + data[8:])
    assert process is None or max(process.pid, process.tid, process.parent_pid) < 1 << 31


def test_records_are_read_up_to_the_first_that_cannot_be_one(tmp_path: Path) -> None:
    fake = FakeProcess(tmp_path, 5)
    fake.record(Kind.COMM, 5, text="name")
    fake.record(99, 1)
    fake.record(Kind.SLICE, 0, 7, 1)
    whole = len(fake.records)
    records = list(parse_records(fake.records + b"\x07" * 200))
    assert [record.kind if record else None for record, _ in records] == [Kind.COMM, None, Kind.SLICE]
    assert records[0][0] is not None and records[0][0].text == "name"
    assert records[-1][1] == whole


def test_nothing_is_read_behind_the_end_of_all_files(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    assert read_at(tmp_path / "file", 1 << 70, 10) == b""


def test_a_page_that_is_not_whole_is_none() -> None:
    assert ProcessState.parse(bytes(PAGE)) is None
    assert ProcessState.parse(b"PWTPSOP1") is None
    assert ThreadState.parse(bytes(20)) is None


@pytest.mark.parametrize("make", [
    lambda path: path.symlink_to("/etc/passwd"), lambda path: path.mkdir(), lambda path: None,
    lambda path: __import__("os").mkfifo(path),
], ids=["link", "folder", "nothing", "fifo"])
def test_only_plain_files_are_read(tmp_path: Path, make: object) -> None:
    path = tmp_path / "file"
    make(path)  # type: ignore[operator]
    assert read_at(path, 0, 100) == b""


def test_stream_parts(tmp_path: Path) -> None:
    fake = FakeProcess(tmp_path, 5, streams=[FakeStream(5, b"a" * 100, b"b" * 30, pending("101"))])
    fake.write()
    state = ThreadState.parse(read_at(tmp_path / "5.0.state", PAGE, PAGE))
    assert state is not None
    assert (state.stored, state.buffered, decode_tnt(state.pending)) == (100, 30, "101")
