# SPDX-License-Identifier: MIT
"""Call stacks with what ran in them: what flame graphs are drawn from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
        table = run.ask("""
            with names as (select function, (row_number() over (order by function nulls first) - 1)::integer as number
                           from (select distinct function from stacks))
            select stack, coalesce(parent, -1) as parent, number
            from stacks join names on names.function is not distinct from stacks.function order by stack""").arrow()
        self._stacks = numbers(table, "stack")
        self._parents = numbers(table, "parent")
        self._functions = numbers(table, "number")
        self.names: list[str] = [name if name is not None else UNKNOWN for name, in run.ask(
            "select distinct function from stacks order by function nulls first")]
        if UNKNOWN not in self.names:
            self.names.append(UNKNOWN)
        if not np.array_equal(self._stacks, np.arange(len(self._stacks))):
            raise BadInput("numbers its stacks with holes", where=str(run.path), remedy="merge the run again")
        if len(self._parents) and not ((self._parents < self._stacks) & (self._parents >= -1)).all():
            raise BadInput("has stacks that are their own parents", where=str(run.path), remedy="merge the run again")

    def frames(self, weighed: Iterable[tuple[int, int]]) -> Iterator[tuple[list[int], int]]:
        """Of each stack (`weights`), indices into `names`, from the bottom (what began it all) to the top, and its
        count. The list is used again for the next one. Raises BadInput for a stack that is not there.

        Stacks that follow each other have most of their frames in common: only the others are looked up."""
        parents, functions = self._parents.data, self._functions.data
        path: list[int] = []  # the stack, and those below it: ascending, as parents come before who they call
        found: list[int] = []
        for stack, count in weighed:
            if not 0 <= stack < len(parents):
                raise BadInput(f"has no stack {stack}", where="profile", remedy="merge the run again")
            above = []
            while stack >= 0:
                while path and path[-1] > stack:
                    path.pop()
                if path and path[-1] == stack:
                    break
                above.append(stack)
                stack = parents[stack]
            if stack < 0:
                path.clear()
            del found[len(path):]
            above.reverse()
            path += above
            found += [functions[one] for one in above]
            yield found, count


def weights(run: Run, weight: Weight, thread: int | None = None) -> Iterator[tuple[int, int]]:
    """Stacks of a thread, or of all, by number, and how much ran in the top function of each: (stack, count)."""
    yield from run.ask(f"""
        select stack, sum("{weight.value}")::bigint as weight from profile
        where (? is null or thread = ?) group by stack having weight > 0 order by stack""", thread, thread)
