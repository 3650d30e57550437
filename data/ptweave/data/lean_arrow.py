# SPDX-License-Identifier: MIT
"""pyarrow for processes of our own, without what they have no use for.

It loads pandas, when it is there, to see whether an array is made of something of it. That is 0.2 to 0.4 s in a
process that never meets pandas: in `ptweave record` they would pass between the target's end and ours, in a decode's
worker they are most of its start. numpy, which it loads, starts a thread of OpenBLAS for each processor, which wait
for work by spinning; nothing here has any for them. And pyarrow's own allocator soon gives memory back to the system,
which clears it anew for column after column: the C library's keeps it, and decoding takes a seventh less. So do the
arenas that the C library has for each thread: with one for all, merging millions of thunks takes an eighth less. And it
gives back what is large or at the end, unless it is told not to: in a virtual machine whose host takes memory that is
free, what is got anew is cleared forty times as slowly. `release_memory` in the decoder gives memory back on purpose.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType

ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system",
               "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Read by numpy and pyarrow when they are loaded; the last one by an allocator in pyarrow that begins a thread although
it is not used. What the user has set stays."""


_ARENA = {"MALLOC_ARENA_MAX": (-8, 1)}
_KEPT = {"MALLOC_TRIM_THRESHOLD_": (-1, 1 << 30), "MALLOC_MMAP_THRESHOLD_": (-3, 1 << 25),
         "MALLOC_TOP_PAD_": (-2, 1 << 24)}
"""Parameters of the GNU C library's allocator (malloc.h; mallopt(3)): the variable that sets each, its number, and what
it is here. One arena; freed memory is kept for what is allocated next, up to the largest blocks it may keep."""


class _Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("hidden from pyarrow", name=name)
        return None


@contextmanager
def _environment() -> Iterator[None]:
    """The environment, which targets get, is put back."""
    added = {name: value for name, value in ENVIRONMENT.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _set(parameters: dict[str, tuple[int, int]]) -> None:
    """For the threads to come, and what is allocated from now on. What the user has set stays."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for variable, (parameter, value) in parameters.items():
        if mallopt is not None and variable not in os.environ:
            mallopt(parameter, value)


def load_lean_arrow() -> None:
    """Load pyarrow, and let it, which looks once, find no pandas in this process. Whoever imports pandas later gets it.

    For processes of our own only: pyarrow's `to_pandas` does not work after it.
    """
    _set(_ARENA)
    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        with _environment():
            import pyarrow
            pyarrow.array([0])
    finally:
        sys.meta_path.remove(hidden)
    _set(_KEPT)  # not before: where there is little address space, libraries need it to be loaded
