# SPDX-License-Identifier: MIT
"""Packets that libipt does not know, in the memory a trace is decoded from: others stand in for them.

What they are and what they become is said in `decode/src/stand_ins.c`.
"""

from __future__ import annotations

from typing import Any

from ptweave.data.errors import MachineLacks
from ptweave.data.manifest import Manifest
from ptweave.decode._ipt import ffi, lib


def may_need_stand_ins(manifest: Manifest) -> bool:
    """Whether such packets may be in a run's traces: the soft engine has none."""
    return manifest.engine != "soft"


def stand_ins(packets: Any, begin: int, end: int) -> Any:
    """Replace them in bytes `begin` to `end` of `packets`, a `uint8_t *`. Returns a `struct ptd_stand_ins *`, or NULL.

    Raises MachineLacks when memory runs out.
    """
    made = ffi.new("struct ptd_stand_ins **")
    if lib.ptd_stand_ins_create(packets + begin, end - begin, made) < 0:
        raise MachineLacks("is out of memory", where="the decoder", remedy="free some memory")
    return ffi.gc(made[0], lib.ptd_stand_ins_destroy) if made[0] else ffi.NULL
