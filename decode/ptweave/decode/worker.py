# SPDX-License-Identifier: MIT
"""What a process of the decoder's own runs. Imports little by itself: what a worker does not need, it does not load."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from ptweave.data.lean_arrow import load_lean_arrow

if TYPE_CHECKING:
    from ptweave.data.manifest import Clocks
    from ptweave.decode.assemble import Part
    from ptweave.decode.task import Decoding, Task

PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None)

_decoding: Decoding | None = None
"""What this process decodes with: set once, when it begins."""


def begin(path: Path, decoder: str, parent: int) -> None:
    """Make ready to decode tasks of the bundle at `path`; this process ends with `parent`, and leaves Ctrl-C and the
    terminal's end to it. What ends it alone waited until here."""
    global _decoding
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before it was asked to take us along
        os._exit(1)
    load_lean_arrow()
    from ptweave.data.bundle import Bundle
    from ptweave.decode.task import Decoder, Decoding
    _decoding = Decoding(Bundle.open(path), Decoder(decoder))


def decode(task: Task, file: Path) -> None:
    assert _decoding is not None
    _decoding.run(task, file)  # and keep the memory: the next task wants as much again


def write(part: Part, folder: Path, clocks: Clocks) -> None:
    from ptweave.decode.assemble import write_part
    write_part(part, folder, clocks)
    release_memory()


def streams(path: Path) -> dict[str, float]:
    from ptweave.data.bundle import Bundle
    from ptweave.decode.streams import decode_streams
    seconds = decode_streams(Bundle.open(path))
    release_memory()
    return seconds


def release_memory() -> None:
    """Give memory that was freed back to the system: other processes want it, too."""
    import pyarrow as pa
    pa.default_memory_pool().release_unused()
    _libc.malloc_trim(0)
