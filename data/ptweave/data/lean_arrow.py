# SPDX-License-Identifier: MIT
"""pyarrow for processes of our own, without what they have no use for.

It loads pandas, when it is there, to see whether an array is made of something of it. That is 0.2 to 0.4 s in a
process that never meets pandas: in `ptweave record` they would pass between the target's end and ours, in a decode's
worker they are most of its start. numpy, which it loads, starts a thread of OpenBLAS for each processor, which wait
for work by spinning; nothing here has any for them. And pyarrow's own allocator soon gives memory back to the system,
which clears it anew for column after column: the C library's keeps it, and decoding takes a seventh less. So do the
arenas that the C library has for each thread: with one for all, merging millions of thunks takes an eighth less.
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


_M_ARENA_MAX = -8  # malloc.h of the GNU C library; others have no arenas


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


def _one_arena() -> None:
    """For the threads to come. What the user has set stays."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_M_ARENA_MAX, 1)


def load_lean_arrow() -> None:
    """Load pyarrow, and let it, which looks once, find no pandas in this process. Whoever imports pandas later gets it.

    For processes of our own only: pyarrow's `to_pandas` does not work after it.
    """
    _one_arena()
    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        with _environment():
            import pyarrow
            pyarrow.array([0])
    finally:
        sys.meta_path.remove(hidden)
