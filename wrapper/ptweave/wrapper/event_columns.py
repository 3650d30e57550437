# SPDX-License-Identifier: MIT
"""Batches of the recorder in C as Arrow columns, over the batch's own memory: valid until it is released."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data.schemas import CAPTURES, RAW_FILES, RAW_SYSCALLS
from ptweave.wrapper.filters import PROBED, Kind
from ptweave.wrapper.kernel_events import FILE

_HEAD = [("kind", "<u2"), ("flags", "<u2"), ("number", "<u4"), ("pid", "<i4"), ("tid", "<i4"), ("t", "<i8")]

DTYPES: dict[Kind, np.dtype[np.void]] = {
    Kind.BLOCKING: np.dtype([*_HEAD, ("duration", "<i8"), ("run_delay", "<i8")]),
    Kind.FILE_DESCRIPTOR_CHANGE: np.dtype([*_HEAD, ("open_fds", "<i8"), ("operation", "<u4"), ("fd", "<i4"),
                                           ("complete", "<u4"), ("pad", "<u4")]),
    Kind.SIGNAL: np.dtype([*_HEAD, ("delivered", "<u4"), ("target_pid", "<i4"), ("target_tid", "<i4"),
                           ("signal", "<i4"), ("code", "<i4"), ("result", "<i4"), ("handler", "<u8")]),
    Kind.WRITE: np.dtype([*_HEAD, ("duration", "<i8"), ("bytes", "<i8"), ("file", "<u8"), ("fd", "<i4"),
                          ("pad", "<u4")]),
    **dict.fromkeys(PROBED, np.dtype([*_HEAD, ("value", "<u8", 8), ("unreadable", "<u4"), ("size", "<u4"),
                                      ("text", "S64")])),
}
"""Records of events as they are in wrapper/bpf/record.h, by kind."""

_FILE = np.dtype([*_HEAD, ("id", "<u8"), ("inode", "<u8"), ("device", "<u4"), ("mode", "<u4"), ("deleted", "<u4"),
                  ("size", "<u4"), ("filesystem", "S16")])

_TRUNCATED_PATH = b"..."
_NAMELESS = {"sockfs": b"socket", "pipefs": b"pipe", "anon_inodefs": b"anon_inode"}


def _array(ffi: Any, batch: Any, kind: int, dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
    rows = int(batch.event_rows[kind])
    if not rows:
        return np.zeros(0, dtype)
    return np.frombuffer(ffi.buffer(batch.events[kind], rows * dtype.itemsize), dtype, rows)


def events(ffi: Any, batch: Any, kind: Kind) -> npt.NDArray[np.void]:
    """A batch's events of a kind beside system calls; a copy."""
    return _array(ffi, batch, kind, DTYPES[kind]).copy()


def copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same in memory of its own, for who keeps it longer than the recorder's batch."""
    return pa.ipc.read_record_batch(batch.serialize(), batch.schema)  # into one buffer of the size it needs


def file_name(filesystem: str, components: list[bytes], inode: int) -> bytes:
    """What a file is called: its path, or as /proc/PID/fd has it what has none (`socket:[12]`, `pipe:[7]`,
    `anon_inode:[eventfd]`)."""
    name = _NAMELESS.get(filesystem)
    if name == b"anon_inode":
        return b"anon_inode:" + (components[0] if components else b"")
    if name is not None:
        return b"%s:[%d]" % (name, inode)
    return b"/" + b"/".join(reversed([one for one in components if one != b"/"]))


# pa.array imports pandas, whatever it is given: 0.4 s, in which the target waits for the supervisor
def _numbers(kind: pa.DataType, values: npt.NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values.astype(kind.to_pandas_dtype()))])


def _truths(values: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little"))])


def _texts(kind: pa.DataType, values: list[bytes]) -> pa.Array:
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))])


def files(ffi: Any, batch: Any) -> pa.RecordBatch:
    """A batch's definitions of files (RAW_FILES)."""
    heads = _array(ffi, batch, FILE, _FILE)
    text = bytes(ffi.buffer(batch.file_text, int(batch.file_bytes))) if len(heads) else b""
    paths: list[bytes] = []
    filesystems: list[bytes] = []
    deleted, at = np.zeros(len(heads), np.bool_), 0
    for index, head in enumerate(heads):
        parts = text[at:at + int(head["size"])].split(b"\0")[:-1]
        at += int(head["size"])
        if head["flags"]:
            parts.append(_TRUNCATED_PATH)
        filesystem = head["filesystem"].decode(errors="backslashreplace")
        filesystems.append(filesystem.encode())
        paths.append(file_name(filesystem, parts, int(head["inode"])))
        deleted[index] = bool(head["deleted"]) and filesystem not in _NAMELESS and parts != [b"/"]
    columns = {"path": _texts(pa.binary(), paths), "filesystem": _texts(pa.string(), filesystems),
               "deleted": _truths(deleted)}
    return pa.RecordBatch.from_arrays(
        [columns[field.name] if field.name in columns else _numbers(field.type, heads[field.name])
         for field in RAW_FILES], schema=RAW_FILES)


def syscalls(ffi: Any, batch: Any) -> pa.RecordBatch:
    """A batch's system calls (RAW_SYSCALLS)."""
    rows, paths, captures = int(batch.rows), int(batch.paths), int(batch.captures)

    def buffer(pointer: Any, size: int) -> pa.Buffer:
        return pa.py_buffer(ffi.buffer(pointer, size))

    def column(kind: pa.DataType, pointer: Any, valid: pa.Buffer | None = None, count: int = rows) -> pa.Array:
        return pa.Array.from_buffers(kind, count, [valid, buffer(pointer, count * kind.bit_width // 8)])

    has_exit = None if batch.returned == rows else buffer(batch.has_exit, (rows + 7) // 8)
    has_path = None if batch.readable == paths else buffer(batch.has_path, (paths + 7) // 8)
    has_capture = None if batch.captured == captures else buffer(batch.has_capture, (captures + 7) // 8)
    text = pa.Array.from_buffers(pa.binary(), paths, [
        has_path, buffer(batch.path_begin, 4 * (paths + 1)), buffer(batch.text, int(batch.path_begin[paths]))])
    data = pa.Array.from_buffers(pa.binary(), captures, [
        has_capture, buffer(batch.capture_begin, 4 * (captures + 1)),
        buffer(batch.data, int(batch.capture_begin[captures]))])
    struct = CAPTURES.value_type
    parts = [column(pa.int8(), pointer, count=captures) for pointer in (
        batch.capture_argument, batch.capture_kind, batch.capture_part, batch.capture_when)]
    parts += [column(pa.int64(), batch.capture_size, count=captures), data]
    return pa.RecordBatch.from_arrays([
        column(pa.int64(), batch.t_enter),
        column(pa.int64(), batch.t_exit, has_exit),
        column(pa.int32(), batch.pid),
        column(pa.int32(), batch.tid),
        column(pa.int32(), batch.number),
        column(pa.uint64(), batch.ip),
        pa.Array.from_buffers(pa.list_(pa.uint64(), 6), rows, [None],
                              children=[column(pa.uint64(), batch.args, count=6 * rows)]),
        pa.Array.from_buffers(pa.list_(pa.binary()), rows, [None, buffer(batch.path_first, 4 * (rows + 1))],
                              children=[text]),
        column(pa.int64(), batch.result, has_exit),
        pa.Array.from_buffers(pa.list_(pa.uint64(), 3), rows, [None],
                              children=[column(pa.uint64(), batch.file, count=3 * rows)]),
        pa.Array.from_buffers(CAPTURES, rows, [None, buffer(batch.capture_first, 4 * (rows + 1))], children=[
            pa.Array.from_buffers(struct, captures, [None], children=parts)]),
    ], schema=RAW_SYSCALLS)
