# SPDX-License-Identifier: MIT
"""A folder that an export makes: whole, or not there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ptweave.data.errors import BadInput, MachineLacks


@dataclass
class Exported:
    """What was made: the folder, and in words what the other tool's format could not take."""

    path: Path
    lacks: list[str] = field(default_factory=list)

    def lack(self, what: str) -> None:
        if what not in self.lacks:
            self.lacks.append(what)


@contextmanager
def new_folder(output: Path) -> Iterator[None]:
    """Make a folder to write into; whatever goes wrong meanwhile, it is removed again.

    Raises BadInput when it exists, MachineLacks when it cannot be made or written.
    """
    try:
        output.mkdir()
    except FileExistsError as error:
        raise BadInput("exists already", where=str(output),
                       remedy="remove it, or choose another name with -o") from error
    except OSError as error:
        raise MachineLacks(f"cannot be made ({error.strerror})", where=str(output),
                           remedy="choose another place with -o") from error
    try:
        yield
    except BaseException as error:
        shutil.rmtree(output, ignore_errors=True)
        if isinstance(error, OSError):
            raise MachineLacks(f"cannot be written ({error.strerror or error})", where=str(output),
                               remedy="make room, or choose another place with -o") from error
        raise


__all__ = ["Exported", "new_folder"]
