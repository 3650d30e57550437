# SPDX-License-Identifier: MIT
"""JSON that the recorder left in a bundle, where the target may have put something else since."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any


def load_json(root: Path, name: Path, limit: int) -> Any:
    """What is in `root/name` (FOLDER/FILE), of at most `limit` bytes; None where there is nothing that can be read.

    Neither may be a link, and the file must be a regular one: opening it waits for nobody.
    """
    try:
        folder = os.open(root / name.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            opened = os.open(name.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC,
                             dir_fd=folder)
        finally:
            os.close(folder)
        with os.fdopen(opened, "rb") as file:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                return None
            data = file.read(limit + 1)
        return None if len(data) > limit else json.loads(data)
    except (OSError, ValueError, RecursionError):
        return None


def is_number(value: object, end: int) -> bool:
    """A whole number in [0, end)."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < end


def is_text(value: object) -> bool:
    """Text that UTF-8 has: JSON may name halves of characters."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
