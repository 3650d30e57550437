# SPDX-License-Identifier: MIT
"""pyarrow without pandas: it loads pandas, when it is there, to see whether an array is made of something of it.

That is 0.2 to 0.4 s in a process that never meets pandas: in `ptweave record` they would pass between the target's end
and ours, in a decode's worker they are most of its start.
"""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("hidden from pyarrow", name=name)
        return None


def hide_pandas() -> None:
    """Let pyarrow, which looks once, find no pandas in this process. Whoever imports pandas later gets it.

    For processes of our own only: pyarrow's `to_pandas` does not work after it.
    """
    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        import pyarrow
        pyarrow.array([0])
    finally:
        sys.meta_path.remove(hidden)
