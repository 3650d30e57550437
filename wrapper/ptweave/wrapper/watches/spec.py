# SPDX-License-Identifier: MIT
"""What `--watch` may say: `[FILE:]VAR[.field][[n]]…[:r|w|rw]`, or `[FILE+]ADDRESS:LENGTH[:r|w|rw]`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntFlag

from ptweave.data import BadInput

FORMS = "give VAR, VAR.field, VAR[n], FILE:VAR, ADDRESS:LENGTH or FILE+ADDRESS:LENGTH, and :r, :w or :rw behind it"
_ADDRESS = re.compile(r"(?:(?P<file>.+)\+)?(?P<address>0[xX][0-9a-fA-F]{1,16}):(?P<length>\d{1,9})")
_VARIABLE = re.compile(r"(?:(?P<file>.*[^:]):(?!:))?(?P<name>[A-Za-z_](?:[\w$]|::(?=[A-Za-z_]))*)"
                       r"(?P<path>(?:\.\w+|\[\d{1,18}\])*)")
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")


class Mode(IntFlag):
    """Which accesses are hits (preload/src/watch_format.h)."""

    WRITE = 1
    READ = 2

    @property
    def letters(self) -> str:
        return "r" * bool(self & Mode.READ) + "w" * bool(self & Mode.WRITE)


_MODES = {"r": Mode.READ, "w": Mode.WRITE, "rw": Mode.READ | Mode.WRITE}


@dataclass(frozen=True)
class Spec:
    """One --watch. With a `name` a variable, `path` leading into it (members' names and indices); else `length` bytes
    at `address`: of the process, or of `file` as it is linked."""

    text: str
    mode: Mode
    file: str | None = None
    name: str = ""
    path: tuple[str | int, ...] = ()
    address: int = 0
    length: int = 0


def parse_spec(text: str) -> Spec:
    """Raises BadInput."""
    rest, colon, last = text.rpartition(":")
    mode = _MODES.get(last) if colon else None
    body, mode = (rest, mode) if mode is not None else (text, Mode.WRITE)
    place = _ADDRESS.fullmatch(body)
    if place:
        return Spec(text, mode, place["file"], address=int(place["address"], 16), length=int(place["length"]))
    variable = _VARIABLE.fullmatch(body)
    if variable is None:
        raise BadInput("is nothing that can be watched", where=f"--watch '{text}'", remedy=FORMS)
    steps = tuple(member or int(index) for member, index in _STEP.findall(variable["path"]))
    name = variable["name"]
    if steps and isinstance(steps[0], str) and steps[0].isdigit():  # a function's static variable, as gcc numbers them
        name, steps = f"{name}.{steps[0]}", steps[1:]
    return Spec(text, mode, variable["file"], name, steps)
