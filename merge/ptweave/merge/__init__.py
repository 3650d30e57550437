# SPDX-License-Identifier: MIT
"""Room 5: tables to answers. `merge_run` makes the merged tables of a bundle, `Run` asks them."""

from ptweave.merge.run import Result, Run, TableInfo
from ptweave.merge.stage import merge_run

__all__ = ["Result", "Run", "TableInfo", "merge_run"]
