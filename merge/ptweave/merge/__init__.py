# SPDX-License-Identifier: MIT
"""Room 5: tables to answers. `merge_run` makes the merged tables of a bundle, `Run` and `Runs` ask them.

Each name is imported when it is asked for: merging needs no SQL, and asking no merging.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ptweave.merge.result import NotMadeWarning, Result
    from ptweave.merge.run import Differences, Run, TableInfo
    from ptweave.merge.runs import Runs
    from ptweave.merge.stage import merge_run

_MODULES = {"Differences": "run", "NotMadeWarning": "result", "Result": "result", "Run": "run", "TableInfo": "run",
            "Runs": "runs", "merge_run": "stage"}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


__all__ = ["Differences", "NotMadeWarning", "Result", "Run", "Runs", "TableInfo", "merge_run"]
