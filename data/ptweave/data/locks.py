# SPDX-License-Identifier: MIT
"""One at a time: who works on a bundle keeps others from it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput

STEP = ".step"
"""Held by a command that decodes or merges, from its first change to its last."""


@contextmanager
def alone(bundle: Bundle, name: str) -> Iterator[None]:
    """Hold the lock of that name in a bundle's `decoded/` (flock(2): gone with its holder). Raises BadInput when it is
    taken; never waits."""
    bundle.decoded.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(bundle.decoded / name, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadInput("is being decoded or merged at this moment", where=str(bundle.path),
                           remedy="wait until that is done") from error
        yield
    finally:
        os.close(lock)
