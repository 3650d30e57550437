# SPDX-License-Identifier: MIT
"""System calls as Arrow columns: names, errors, as many arguments as a call has, paths as text."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.data import syscall_table

_TABLE_SIZE = 512
ARGUMENT_COUNTS = np.array([min(syscall_table.nargs_of(number), 6) for number in range(_TABLE_SIZE)], dtype=np.int64)
PATH_COUNTS = np.array([len(syscall_table.SYSCALLS[number].paths) if number in syscall_table.SYSCALLS else 0
                   for number in range(_TABLE_SIZE)], dtype=np.int64)


def per_number(table: npt.NDArray[np.int64], numbers: npt.NDArray[np.int32], other: int) -> npt.NDArray[np.int64]:
    """A value of a table by call number; `other` for numbers that are in none."""
    known = (numbers >= 0) & (numbers < _TABLE_SIZE)
    return np.where(known, table[np.where(known, numbers, 0)], other)


def names(numbers: npt.NDArray[np.int32]) -> pa.Array:
    """Names of calls."""
    distinct, index = np.unique(numbers, return_inverse=True)
    names = pa.array([syscall_table.name_of(int(number)) for number in distinct], pa.string())
    return names.take(pa.array(index))


def errnos(result: npt.NDArray[np.int64], returned: npt.NDArray[np.bool_]) -> pa.Array:
    """Names of errors; null where the result is none."""
    failed = returned & (result >= -syscall_table.MAX_ERRNO) & (result <= -1)
    distinct, index = np.unique(np.where(failed, result, 0), return_inverse=True)
    names = pa.array([syscall_table.errno_name(int(one)) for one in distinct], pa.string())
    return names.take(pa.array(index))


_NAMES = pa.array([syscall_table.name_of(number) for number in range(_TABLE_SIZE)], pa.string())
_KNOWN_ERRNOS = 520  # with those that stay in the kernel (ERESTART…: 512 to 516)
_ERRNOS = pa.array(["", *(syscall_table.errno_name(-one) for one in range(1, _KNOWN_ERRNOS))], pa.string())


def _encoded(index: npt.NDArray[np.int32], values: pa.Array, missing: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(index, pa.int32(), mask=missing), values)


def constant(value: str, rows: int) -> pa.Array:
    """The same text in each row, as a dictionary."""
    return _encoded(np.zeros(rows, np.int32), pa.array([value], pa.string()))


def encoded_names(numbers: npt.NDArray[np.int32]) -> pa.Array:
    """`names` as a dictionary, the same one for all batches whose numbers are known."""
    if len(numbers) and (numbers.min() < 0 or numbers.max() >= _TABLE_SIZE):
        return names(numbers).dictionary_encode()
    return _encoded(numbers, _NAMES)


def encoded_errnos(result: npt.NDArray[np.int64], returned: npt.NDArray[np.bool_]) -> pa.Array:
    """`errnos` as a dictionary, the same one for all batches whose errors have names."""
    failed = returned & (result >= -syscall_table.MAX_ERRNO) & (result <= -1)
    index = np.where(failed, -result, 0)
    if len(index) and index.max() >= _KNOWN_ERRNOS:
        return errnos(result, returned).dictionary_encode()
    return _encoded(index.astype(np.int32), _ERRNOS, ~failed)


def offsets(lengths: npt.NDArray[np.int64]) -> pa.Array:
    """Offsets of lists with these lengths."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.array(offsets)


def arguments(numbers: npt.NDArray[np.int32], args: npt.NDArray[np.uint64]) -> pa.Array:
    """As many of six arguments (rows × 6) as each call has."""
    lengths = per_number(ARGUMENT_COUNTS, numbers, 6)
    values = args[np.arange(6) < lengths[:, None]]
    return pa.ListArray.from_arrays(offsets(lengths), pa.array(values, pa.uint64()))


def text_of(paths: pa.Array) -> pa.Array:
    """Paths as text; bytes that are not UTF-8 appear as \\xNN."""
    try:
        return paths.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if one is None else one.decode("utf-8", "backslashreplace")
                         for one in paths.to_pylist()], pa.string())
