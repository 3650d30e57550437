# SPDX-License-Identifier: MIT
"""Call stacks with what ran in them: what flame graphs are drawn from."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import numpy as np

from ptweave.data.errors import BadInput
from ptweave.merge.exports.spans import UNKNOWN
from ptweave.merge.run import Run
from ptweave.merge.tables import numbers


class Weight(StrEnum):
    """What is counted of a stack: a column of `profile`."""

    INSTRUCTIONS = "instructions"
    BLOCKS = "blocks"
    CALLS = "calls"
    TIME = "time"  # ns


class Stacks:
    """All call stacks of a run. Memory: 8 bytes a stack, and each function's name once."""

    def __init__(self, run: Run) -> None:
        table = run.sql("""
            with names as (select function, (row_number() over (order by function nulls first) - 1)::integer as number
                           from (select distinct function from stacks))
            select stack, coalesce(parent, -1) as parent, number
            from stacks join names on names.function is not distinct from stacks.function order by stack""").arrow()
        self._stacks = numbers(table, "stack")
        self._parents = numbers(table, "parent")
        self._functions = numbers(table, "number")
        self.names: list[str] = [name if name is not None else UNKNOWN for name, in run.sql(
            "select distinct function from stacks order by function nulls first")]
        if UNKNOWN not in self.names:
            self.names.append(UNKNOWN)
        if not np.array_equal(self._stacks, np.arange(len(self._stacks))):
            raise BadInput("numbers its stacks with holes", where=str(run.path), remedy="merge the run again")
        if len(self._parents) and not ((self._parents < self._stacks) & (self._parents >= -1)).all():
            raise BadInput("has stacks that are their own parents", where=str(run.path), remedy="merge the run again")

    def frames(self, stack: int) -> list[int]:
        """Indices into `names`, from the bottom (what began it all) to the top. Raises BadInput for a stack that is
        not there."""
        if not 0 <= stack < len(self._stacks):
            raise BadInput(f"has no stack {stack}", where="profile", remedy="merge the run again")
        found = []
        while stack >= 0:
            found.append(int(self._functions[stack]))
            stack = int(self._parents[stack])
        found.reverse()
        return found


def weights(run: Run, weight: Weight, thread: int | None = None) -> Iterator[tuple[int, int]]:
    """Stacks of a thread, or of all, by number, and how much ran in the top function of each: (stack, count)."""
    yield from run.sql(f"""
        select stack, sum("{weight.value}")::bigint as weight from profile
        where (? is null or thread = ?) group by stack having weight > 0 order by stack""", thread, thread)
