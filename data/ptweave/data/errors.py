# SPDX-License-Identifier: MIT
"""One kind of error for everything a user can meet: what, where, what to do, and the exit status."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit statuses of every command but the target's own (which `wrap`, `record` and `events` pass on)."""

    DONE = 0
    INCOMPLETE = 1  # done, with known losses or gaps
    USAGE = 2  # wrong use or bad input
    MACHINE = 3  # the machine lacks something, or something broke that is not the input's fault


class PtweaveError(Exception):
    """An error with a remedy, shown as one line on stderr.

    `what` says what happened, `where` names the file, address or option, `remedy` says what to do.
    """

    def __init__(self, what: str, *, where: str = "", remedy: str = "", status: Exit = Exit.USAGE) -> None:
        self.what = what
        self.where = where
        self.remedy = remedy
        self.status = status
        super().__init__(self.line())

    def line(self) -> str:
        """The one line, without the program's name."""
        text = f"{self.where}: {self.what}" if self.where else self.what
        if self.remedy:
            text += f": {self.remedy}" if text[-1:] not in ".:;" else f" {self.remedy}"
        return " ".join(text.split())


class BadInput(PtweaveError):
    """The input, the command line or the bundle is wrong (exit status 2)."""


class MachineLacks(PtweaveError):
    """The machine lacks something, or broke (exit status 3)."""

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(what, where=where, remedy=remedy, status=Exit.MACHINE)


class NotInstalled(MachineLacks):
    """A package of one of ptweave's extras (pyproject.toml) is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed",
                         remedy=f"in ptweave's own folder: .venv/bin/pip install -e '.[{extra}]'")
