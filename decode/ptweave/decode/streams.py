# SPDX-License-Identifier: MIT
"""What was recorded beside the traces, to tables in `decoded/`: system calls, thunks, tags. It needs no flow."""

from __future__ import annotations

import time

from ptweave.data.bundle import Bundle
from ptweave.decode.syscalls import decode_syscalls
from ptweave.decode.tags import decode_tags
from ptweave.decode.thunks import decode_thunks

_LONG_BYTES = 4 << 20
"""Of recordings that take longer to decode than a process of its own takes to begin and end."""

_STEPS = {"system calls": decode_syscalls, "thunks": decode_thunks, "tags": decode_tags}


def decode_streams(bundle: Bundle) -> dict[str, float]:
    """Decode them one after the other, and account for them in the ledger, which nobody else writes meanwhile. Returns
    the seconds each took. Raises BadInput as they do; those before it are decoded then."""
    seconds = {}
    for name, decode in _STEPS.items():
        began = time.monotonic()
        decode(bundle)
        seconds[name] = time.monotonic() - began
    return seconds


def streams_take_long(bundle: Bundle) -> bool:
    """Whether it is worth a process of its own."""
    logs = sum(path.stat().st_size for path in bundle.trace.glob("*.sys") if not path.is_symlink())
    return logs + bundle.size(["dependence", "events"]) > _LONG_BYTES
