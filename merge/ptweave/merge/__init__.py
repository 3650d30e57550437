# SPDX-License-Identifier: MIT
"""Room 5: tables to answers. `merge_run` makes the merged tables of a bundle, `Run` and `Runs` ask them."""

from ptweave.merge.run import Differences, Result, Run, TableInfo
from ptweave.merge.runs import Runs
from ptweave.merge.stage import merge_run

__all__ = ["Differences", "Result", "Run", "Runs", "TableInfo", "merge_run"]
