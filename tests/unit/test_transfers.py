# SPDX-License-Identifier: MIT
"""Transfers: which file, which offset, which thunk; and descriptors through all that makes and copies them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ptweave.data import layout
from ptweave.data.bundle import Bundle
from ptweave.data.schemas import EDGES, TRANSFERS
from ptweave.data.syscall_table import NUMBERS
from ptweave.merge import merge_run
from support.bundle_writer import BundleWriter, rows_of

AT_FDCWD = 0xFFFFFF9C
BUFFER = 0x7000


pytestmark = pytest.mark.usefixtures("few_or_many")


class Calls:
    """System calls of a program, one after the other."""

    def __init__(self, writer: BundleWriter) -> None:
        self.writer = writer
        self.t = 1000

    def __call__(self, name: str, *args: int, result: int = 0, path: str | None = None, thread: int = 0,
                 files: Sequence[str] = ()) -> None:
        self.t += 10
        self.writer.syscall(thread, None, enter=self.t, leave=self.t + 5, number=NUMBERS[name], result=result)
        assert self.writer.syscalls
        self.writer.syscalls[-1].update(name=name, args=list(args), paths=[] if path is None else [path],
                                        files=list(files))


def merged(writer: BundleWriter) -> Bundle:
    bundle = writer.write()
    merge_run(bundle)
    return bundle


def moved(bundle: Bundle) -> list[tuple[object, ...]]:
    names = ("kind", "input", "descriptor", "path", "offset", "size", "address")
    return [tuple(row[name] for name in names) for row in rows_of(bundle, TRANSFERS)]


def started(folder: Path) -> tuple[BundleWriter, Calls]:
    writer = BundleWriter(folder / "run.ptw")
    writer.task(0)
    return writer, Calls(writer)


def test_offsets_follow_reads_seeks_and_copies_of_descriptors(tmp_path: Path) -> None:
    writer, call = started(tmp_path)
    call("openat", AT_FDCWD, 1, 0, 0, result=3, path="in")
    call("read", 3, BUFFER, 100, result=40)
    call("dup2", 3, 9, result=9)
    call("read", 9, BUFFER, 100, result=10)  # shares the position
    call("lseek", 3, 500, 0, result=500)
    call("read", 9, BUFFER, 8, result=8)
    call("pread64", 3, BUFFER, 4, 7000, result=4)  # moves nothing
    call("read", 3, BUFFER, 8, result=0)  # the end: nothing came
    call("read", 3, BUFFER, 1, result=1)
    call("close", 3)
    call("read", 9, BUFFER, 1, result=1)
    call("openat", AT_FDCWD, 1, 0, 0, result=3, path="other")
    call("readv", 3, BUFFER, 1, result=2)
    assert moved(merged(writer)) == [
        ("read", True, 3, "in", 0, 40, BUFFER), ("read", True, 9, "in", 40, 10, BUFFER),
        ("read", True, 9, "in", 500, 8, BUFFER), ("read", True, 3, "in", 7000, 4, BUFFER),
        ("read", True, 3, "in", 508, 1, BUFFER), ("read", True, 9, "in", 509, 1, BUFFER),
        ("read", True, 3, "other", 0, 2, None)]


def test_outputs_streams_and_what_is_not_known(tmp_path: Path) -> None:
    writer, call = started(tmp_path)
    call("write", 1, BUFFER, 5, result=5)
    call("read", 0, BUFFER, 5, result=3)
    call("write", 1, BUFFER, 5, result=4)
    call("openat", AT_FDCWD, 1, 0o2001, 0, result=4, path="log")  # O_APPEND: nobody knows where
    call("write", 4, BUFFER, 5, result=5)
    call("socket", 2, 1, 0, result=5)
    call("sendto", 5, BUFFER, 6, 0, 0, 0, result=6)
    call("recvfrom", 5, BUFFER, 6, 0, 0, 0, result=2)
    call("sendfile", 1, 4, 0, 7, result=7)
    call("write", 8, BUFFER, 1, result=1)  # a pipe's, perhaps
    call("write", 1, BUFFER, 1, result=-32)  # failed
    assert moved(merged(writer)) == [
        ("write", False, 1, "stdout", 0, 5, BUFFER), ("read", True, 0, "stdin", 0, 3, BUFFER),
        ("write", False, 1, "stdout", 5, 4, BUFFER), ("write", False, 4, "log", None, 5, BUFFER),
        ("send", False, 5, "socket", 0, 6, BUFFER), ("receive", True, 5, "socket", 0, 2, BUFFER),
        ("read", True, 4, "log", None, 7, None), ("write", False, 1, "stdout", 9, 7, None),
        ("write", False, 8, None, 0, 1, BUFFER)]


def test_exec_closes_what_it_should_and_a_child_has_copies(tmp_path: Path) -> None:
    writer, call = started(tmp_path)
    writer.sideband.append({"kind": "process", "tsc": 5, "pid": 101, "space": 1, "tid": 101, "value": 100,
                            "path": None, "detail": "fork"})
    writer.task(1, pid=101, space=1, begin=5)
    call("openat", AT_FDCWD, 1, 0o2000000, 0, result=3, path="closing")
    call("openat", AT_FDCWD, 1, 0, 0, result=4, path="staying")
    call("read", 4, BUFFER, 1, result=1, thread=1)
    call("close", 4, thread=1)
    call("execve", 1, 1, 1, path="/bin/true")
    call("read", 3, BUFFER, 1, result=1)
    call("read", 4, BUFFER, 1, result=1)
    assert moved(merged(writer)) == [
        ("read", True, 4, "staying", 0, 1, BUFFER), ("read", True, 3, None, 0, 1, BUFFER),
        ("read", True, 4, "staying", 1, 1, BUFFER)]  # parent and child share the position


def test_transfers_lead_into_and_out_of_the_thunk_they_were_made_in(tmp_path: Path) -> None:
    writer, call = started(tmp_path)
    for t in (0, 1015, 1500):
        writer.thunk(0, t=t, operation="mutex_lock")
    call("read", 0, BUFFER, 1, result=1)
    call("write", 1, BUFFER, 1, result=1)
    bundle = merged(writer)
    assert [row["thunk"] for row in rows_of(bundle, TRANSFERS)] == [0, 1]
    edges = [row for row in rows_of(bundle, EDGES) if row["kind"] in ("input", "output")]
    assert [(row["kind"], row["from_thread"], row["from_thunk"], row["to_thread"], row["to_thunk"], row["transfer"])
            for row in edges] == [("input", None, None, 0, 0, 0), ("output", 0, 1, None, None, 1)]


def test_pages_of_mapped_files_come_in_where_they_are_accessed(tmp_path: Path) -> None:
    writer, call = started(tmp_path)
    for t in (0, 2000, 3000):
        writer.thunk(0, t=t)
    at = layout.FILES
    call("openat", AT_FDCWD, 1, 2, 0, result=3, path="first")
    call("mmap", 0, 8192, 1, 2, 3, 4096, result=at)
    writer.access(0, 1, at, write=False, t=2001)
    writer.access(0, 1, at + 4096, write=True, t=2002)
    call.t = 2500
    call("openat", AT_FDCWD, 1, 2, 0, result=4, path="second")
    call("mmap", 0, 4096, 3, 1, 4, 0, result=at)  # in its place, shared and writable
    writer.access(0, 2, at, write=True, t=3001)
    bundle = merged(writer)
    assert moved(bundle) == [("map", True, 3, "first", 4096, 8192, at), ("map", True, 4, "second", 0, 4096, at),
                             ("map", False, 4, "second", 0, 4096, at)]
    edges = [row for row in rows_of(bundle, EDGES) if row["kind"] in ("input", "output")]
    assert sorted((row["kind"], row["transfer"], row["to_thunk"], row["from_thunk"], row["page"]) for row in edges) == [
        ("input", 0, 1, None, at), ("input", 0, 1, None, at + 4096), ("input", 1, 2, None, at),
        ("output", 2, None, 2, at)]


def test_calls_with_too_few_arguments_move_nothing(tmp_path: Path) -> None:
    writer, call = started(tmp_path)
    for name in ("read", "pwrite64", "mmap", "fcntl", "close_range", "sendfile", "dup2", "lseek", "openat", "close"):
        call(name, result=3)
        call(name, (1 << 64) - 1, result=3)
    assert all(row[2] is not None for row in moved(merged(writer)))


def test_exec_closes_what_was_marked_after_it_was_made(tmp_path: Path) -> None:
    writer, call = started(tmp_path)
    closing = 0o2000000
    call("openat", AT_FDCWD, 1, 0, 0, result=3, path="staying")
    call("dup2", 3, 4, result=4)
    call("fcntl", 4, 2, 1)  # F_SETFD
    call("fcntl", 3, 1030, 5, result=5)  # F_DUPFD_CLOEXEC
    call("dup3", 3, 6, closing, result=6)
    call("socket", 2, 1 | closing, 0, result=7)
    call("dup2", 3, 8, result=8)
    call("close_range", 8, 8, 4)  # CLOSE_RANGE_CLOEXEC
    call("openat", AT_FDCWD, 1, closing, 0, result=9, path="freed")
    call("fcntl", 9, 2, 0)
    call("execve", 1, 1, 1, path="/bin/true")
    for number in range(3, 10):
        call("read", number, BUFFER, 1, result=1)
    assert [row[3] for row in moved(merged(writer))] == ["staying", *[None] * 5, "freed"]


def test_what_is_appended_goes_to_the_end_wherever_the_position_is(tmp_path: Path) -> None:
    writer, call = started(tmp_path)
    call("openat", AT_FDCWD, 1, 0o2002, 0, result=3, path="log")
    call("read", 3, BUFFER, 4, result=4)
    call("lseek", 3, 0, 0, result=0)
    call("write", 3, BUFFER, 5, result=5)  # nobody knows where
    call("lseek", 3, 0, 2, result=100)
    call("lseek", 3, 7, 0, result=7)
    call("write", 3, BUFFER, 5, result=5)
    call("read", 3, BUFFER, 1, result=1)
    call("fcntl", 3, 4, 2)  # F_SETFL, without O_APPEND
    call("lseek", 3, 7, 0, result=7)
    call("write", 3, BUFFER, 5, result=5)
    call("openat", AT_FDCWD, 1, 0o3001, 0, result=4, path="new")  # O_TRUNC, too
    call("write", 4, BUFFER, 5, result=5)
    call("write", 4, BUFFER, 5, result=5)
    assert [row[3:6] for row in moved(merged(writer))] == [
        ("log", 0, 4), ("log", None, 5), ("log", 100, 5), ("log", 105, 1), ("log", 7, 5), ("new", 0, 5), ("new", 5, 5)]


def test_copies_at_an_offset_in_memory_move_no_position(tmp_path: Path) -> None:
    writer, call = started(tmp_path)
    call("openat", AT_FDCWD, 1, 0, 0, result=3, path="in")
    call("openat", AT_FDCWD, 1, 2, 0, result=4, path="out")
    call("sendfile", 4, 3, BUFFER, 7, result=7)
    call("copy_file_range", 3, 0, 4, BUFFER, 5, 0, result=5)
    call("splice", 3, BUFFER, 4, 0, 2, 0, result=2)
    call("sendfile", 4, 3, 0, 1, result=1)
    assert [row[3:6] for row in moved(merged(writer))] == [
        ("in", None, 7), ("out", 0, 7), ("in", 0, 5), ("out", None, 5), ("in", None, 2), ("out", 7, 2), ("in", 5, 1),
        ("out", 9, 1)]


def test_copies_at_an_offset_that_was_kept_are_there(tmp_path: Path) -> None:
    writer, call = started(tmp_path)

    def kept(argument: int, offset: int, when: int = 0) -> dict[str, object]:
        return {"argument": argument, "kind": 3, "part": 0, "when": when, "size": 8,
                "data": offset.to_bytes(8, "little")}

    call("openat", AT_FDCWD, 1, 0, 0, result=3, path="in")
    call("openat", AT_FDCWD, 1, 2, 0, result=4, path="out")
    for name, args, result, data in (
            ("sendfile", (4, 3, BUFFER, 7), 7, [kept(2, 107, when=1), kept(2, 100)]),
            ("copy_file_range", (3, BUFFER, 4, BUFFER, 5, 0), 5, [kept(1, 20), kept(3, 30)]),
            ("splice", (3, BUFFER, 4, 0, 2, 0), 2, [kept(1, 40)]), ("sendfile", (4, 3, 0, 1), 1, [])):
        call(name, *args, result=result)
        assert writer.syscalls
        writer.syscalls[-1]["data"] = data
    assert [row[3:6] for row in moved(merged(writer))] == [
        ("in", 100, 7), ("out", 0, 7), ("in", 20, 5), ("out", 30, 5), ("in", 40, 2), ("out", 7, 2), ("in", 0, 1),
        ("out", 9, 1)]


def test_a_child_has_the_descriptors_of_when_it_was_forked(tmp_path: Path) -> None:
    writer, call = started(tmp_path)
    call("openat", AT_FDCWD, 1, 0, 0, result=3, path="first")
    call("read", 3, BUFFER, 2, result=2)
    call("clone", 0x1200011, 0, 0, 0, 0, result=101)
    call("close", 3)
    call("openat", AT_FDCWD, 1, 0, 0, result=3, path="second")
    call("read", 3, BUFFER, 5, result=5)
    writer.sideband.append({"kind": "process", "tsc": 1025, "pid": 101, "space": 1, "tid": 101, "value": 100,
                            "path": None, "detail": "fork"})
    writer.task(1, pid=101, space=1, begin=1025)
    call("read", 3, BUFFER, 3, result=3, thread=1)
    call("read", 3, BUFFER, 1, result=1)
    assert moved(merged(writer)) == [
        ("read", True, 3, "first", 0, 2, BUFFER), ("read", True, 3, "second", 0, 5, BUFFER),
        ("read", True, 3, "first", 2, 3, BUFFER), ("read", True, 3, "second", 5, 1, BUFFER)]


@pytest.mark.parametrize("known", [True, False])
def test_a_child_forked_by_a_thread_that_is_a_process_has_the_programs_descriptors(tmp_path: Path,
                                                                                   known: bool) -> None:
    writer, call = started(tmp_path)
    for pid, maker, detail in ((101, 100, "thread"), (102, 101, "fork"), (103, 102, "fork")):
        writer.sideband.append({"kind": "process", "tsc": pid, "pid": pid, "space": pid - 100, "tid": pid,
                                "value": maker, "path": None, "detail": detail})
        writer.task(pid - 100, pid=pid, space=pid - 100, begin=pid)
    call("openat", AT_FDCWD, 1, 0, 0, result=3, path="file")
    if known:  # by way of a process that does nothing else
        call("clone", 17, 0, 0, 0, 0, result=102, thread=1)
        call("clone", 17, 0, 0, 0, 0, result=103, thread=2)
    call("read", 3, BUFFER, 2, result=2, thread=3)
    call("read", 3, BUFFER, 1, result=1, thread=1)
    assert moved(merged(writer)) == [("read", True, 3, "file", 0, 2, BUFFER), ("read", True, 3, "file", 2, 1, BUFFER)]


def test_a_child_made_to_share_descriptors_shares_them(tmp_path: Path) -> None:
    writer, call = started(tmp_path)
    writer.sideband.append({"kind": "process", "tsc": 5, "pid": 101, "space": 1, "tid": 101, "value": 100,
                            "path": None, "detail": "fork"})
    writer.task(1, pid=101, space=1, begin=5)
    call("clone", 0x411, 0, 0, 0, 0, result=101)
    call("read", 0, BUFFER, 1, result=1, thread=1)
    call("openat", AT_FDCWD, 1, 0, 0, result=3, path="later")
    call("read", 3, BUFFER, 2, result=2, thread=1)
    assert moved(merged(writer)) == [("read", True, 0, "stdin", 0, 1, BUFFER), ("read", True, 3, "later", 0, 2, BUFFER)]


def test_who_seeks_in_an_inherited_descriptor_has_a_file(tmp_path: Path) -> None:
    writer, call = started(tmp_path)
    call("read", 0, BUFFER, 4, result=4)
    call("lseek", 0, 1, 0, result=1)
    call("read", 0, BUFFER, 2, result=2)
    call("write", 1, BUFFER, 3, result=3)
    call("lseek", 1, 0, 0, result=0)
    call("write", 1, BUFFER, 1, result=1)
    call("lseek", 2, 0, 1, result=-29)  # a terminal
    call("write", 2, BUFFER, 1, result=1)
    assert moved(merged(writer)) == [
        ("read", True, 0, "stdin", 0, 4, BUFFER), ("read", True, 0, "stdin", 1, 2, BUFFER),
        ("write", False, 1, "stdout", 0, 3, BUFFER), ("write", False, 1, "stdout", 0, 1, BUFFER),
        ("write", False, 2, "stderr", 0, 1, BUFFER)]


def test_what_is_appended_to_a_file_that_others_have_open_is_nobody_knows_where(tmp_path: Path) -> None:
    writer, call = started(tmp_path)
    call("openat", AT_FDCWD, 1, 0o3001, 0, result=3, path="log")
    call("write", 3, BUFFER, 5, result=5)
    call("openat", AT_FDCWD, 1, 0, 0, result=4, path="./log")  # reads only
    call("write", 3, BUFFER, 5, result=5)
    call("openat", AT_FDCWD, 1, 0o2001, 0, result=5, path="./log")
    call("write", 5, BUFFER, 7, result=7)
    call("write", 3, BUFFER, 5, result=5)
    call("close", 5)
    call("close", 3)
    call("openat", AT_FDCWD, 1, 0o2001, 0, result=3, path="log")
    call("lseek", 3, 0, 2, result=22)  # alone again
    call("write", 3, BUFFER, 1, result=1)
    call("truncate", 1, 0, path="log")
    call("write", 3, BUFFER, 1, result=1)
    assert [(row[3], row[4]) for row in moved(merged(writer))] == [
        ("log", 0), ("log", 5), ("./log", None), ("log", None), ("log", 22), ("log", None)]


def test_the_end_of_a_file_is_where_it_was_cut_or_what_was_written_ends(tmp_path: Path) -> None:
    writer, call = started(tmp_path)
    call("openat", AT_FDCWD, 1, 0o3002, 0, result=3, path="log")
    call("write", 3, BUFFER, 5, result=5)
    call("ftruncate", 3, 2)
    call("write", 3, BUFFER, 5, result=5)
    call("pwrite64", 3, BUFFER, 3, 100, result=3)  # appends: the offset counts for nothing
    call("write", 3, BUFFER, 1, result=1)
    call("fcntl", 3, 4, 0)
    call("lseek", 3, 50, 0, result=50)
    call("write", 3, BUFFER, 1, result=1)
    call("pwritev2", 3, BUFFER, 1, 10, 0, 0x10, result=4)  # RWF_APPEND
    call("fcntl", 3, 4, 0o2000)
    call("write", 3, BUFFER, 1, result=1)
    call("fallocate", 3, 0, 0, 4096)
    call("write", 3, BUFFER, 1, result=1)
    assert [row[4] for row in moved(merged(writer))] == [0, 2, 7, 10, 50, 51, 55, None]


def test_of_several_messages_it_is_not_known_how_many_bytes_they_have(tmp_path: Path) -> None:
    writer, call = started(tmp_path)
    call("socket", 2, 1, 0, result=5)
    call("sendto", 5, BUFFER, 6, 0, 0, 0, result=6)
    call("sendmmsg", 5, BUFFER, 2, 0, result=2)
    call("sendto", 5, BUFFER, 6, 0, 0, 0, result=6)
    call("recvmmsg", 5, BUFFER, 2, 0, 0, result=1)
    call("recvfrom", 5, BUFFER, 6, 0, 0, 0, result=2)
    bundle = merged(writer)
    assert moved(bundle) == [
        ("send", False, 5, "socket", 0, 6, BUFFER), ("send", False, 5, "socket", 6, None, None),
        ("send", False, 5, "socket", None, 6, BUFFER), ("receive", True, 5, "socket", 0, None, None),
        ("receive", True, 5, "socket", None, 2, BUFFER)]


def test_a_pipe_is_one_whoever_uses_it_by_whatever_number(tmp_path: Path) -> None:
    writer, call = started(tmp_path)
    for pid in (101, 102):
        writer.sideband.append({"kind": "process", "tsc": 5, "pid": pid, "space": pid - 100, "tid": pid, "value": 100,
                                "path": None, "detail": "fork"})
        writer.task(pid - 100, pid=pid, space=pid - 100, begin=5)
    for pid in (101, 102):
        call("clone", 17, 0, 0, 0, 0, result=pid)
    call("dup2", 4, 1, result=1, thread=1, files=["pipe:[7]"])
    call("write", 1, BUFFER, 10, result=10, thread=1, files=["pipe:[7]"])
    call("write", 4, BUFFER, 5, result=5, thread=2, files=["pipe:[7]"])
    call("write", 6, BUFFER, 5, result=5, thread=2, files=["pipe:[8]"])  # another
    call("read", 3, BUFFER, 12, result=12, files=["pipe:[7]"])
    call("sendfile", 9, 3, 0, 3, result=3, thread=1, files=["socket:[9]", "pipe:[7]"])
    call("write", 9, BUFFER, 1, result=1, files=["socket:[9]"])
    call("write", 5, BUFFER, 1, result=1)  # nobody knows
    assert [(row[2], row[4], row[5]) for row in moved(merged(writer))] == [
        (1, 0, 10), (4, 10, 5), (6, 0, 5), (3, 0, 12), (3, 12, 3), (9, 0, 3), (9, 3, 1), (5, 0, 1)]
