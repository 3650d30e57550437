# SPDX-License-Identifier: MIT
"""Files of tests given to xdist's workers, also when one of these dies.

Where a worker dies, xdist's own scheduler gives out all that the worker ever had, what it ran to the end too. For such
a file a worker is sent nothing, asks for nothing, and waits for ever with the last of its tests: it begins one only
when it knows the next. It also repeats the test in which the worker died, which takes the next worker along.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

ENOUGH = 2
"""Tests a worker needs so that it can begin one."""


class FileScheduling(LoadFileScheduling):
    """A file's tests to one worker; what a dead one left undone to the others, but for the test it died in."""

    def remove_node(self, node: WorkerController) -> str | None:
        """Forget a worker, as xdist asks for; the test it died in, if any. Raises KeyError: none of ours."""
        undone = {scope: unit for scope, unit in self.assigned_work.pop(node).items() if not all(unit.values())}
        if not undone:
            return None
        scope, unit = next(iter(undone.items()))
        died_in = next(test for test, done in unit.items() if not done)
        unit[died_in] = True
        if all(unit.values()):
            del undone[scope]
        self.workqueue.update(undone)
        for other in self.assigned_work:
            self._reschedule(other)
        return died_in

    def _reschedule(self, node: WorkerController) -> None:
        if node not in self.registered_collections:  # it has just begun, and says later which tests there are
            return
        with suppress(OSError):  # it has died, and xdist will say so: then what it was given is undone
            super()._reschedule(node)
            while not node.shutting_down and self._pending_of(self.assigned_work[node]) < ENOUGH:
                super()._reschedule(node)  # gives the next file, or tells the worker that there is none
