# SPDX-License-Identifier: MIT
"""pyarrow without pandas: it loads pandas, when it is there, to see whether an array is made of something of it.

That is 0.2 to 0.4 s in a process that never meets pandas: in `ptweave record` they would pass between the target's end
and ours, in a decode's worker they are most of its start. numpy, which pyarrow loads, starts a thread of OpenBLAS for
each processor, which wait for work by spinning; nothing here has any for them.
"""

from __future__ import annotations

import importlib.abc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType

BLAS_THREADS = "OPENBLAS_NUM_THREADS"


class _Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("hidden from pyarrow", name=name)
        return None


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """OpenBLAS reads its number of threads when it is loaded. The environment, which targets get, is put back."""
    if BLAS_THREADS in os.environ:
        yield
        return
    os.environ[BLAS_THREADS] = "1"
    try:
        yield
    finally:
        del os.environ[BLAS_THREADS]


def hide_pandas() -> None:
    """Let pyarrow, which looks once, find no pandas in this process, and numpy make no threads. Whoever imports pandas
    later gets it.

    For processes of our own only: pyarrow's `to_pandas` does not work after it.
    """
    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        with _one_blas_thread():
            import pyarrow
        pyarrow.array([0])
    finally:
        sys.meta_path.remove(hidden)
