# SPDX-License-Identifier: MIT
"""What happened between a thread's blocks, as the walk takes it: gaps, interruptions, exec, sigreturn."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ptweave.merge._merge import ffi, lib
from ptweave.merge.addresses import Addresses
from ptweave.merge.align import bounds
from ptweave.merge.moments import known_moments
from ptweave.merge.program import Program
from ptweave.merge.tables import I64, U64, ThreadRows, numbers

EVENT_DTYPE = np.dtype([("seq", "<i8"), ("from", "<u8"), ("from_block", "<i4"), ("to_block", "<i4"),
                        ("kind", "<i4"), ("zero", "<i4")])
assert ffi.sizeof("struct ptm_event") == EVENT_DTYPE.itemsize

Events = npt.NDArray[np.void]

_OTHER, _ASYNC_DISABLED, _ENABLED, _DISABLED, _ASYNC_BRANCH = range(5)
_KINDS = {"async_disabled": _ASYNC_DISABLED, "enabled": _ENABLED, "disabled": _DISABLED,
          "async_branch": _ASYNC_BRANCH}
_ORDER = {int(lib.PTM_EXEC): 0, int(lib.PTM_MOVED): 0, int(lib.PTM_SIGRETURN): 1, int(lib.PTM_GAP): 2,
          int(lib.PTM_ASYNC): 3}

COLUMNS = ["seq", "kind", "ip", "target"]


def events_of(kind: int, seqs: I64) -> Events:
    """Events of one kind at these ordinals."""
    events = np.zeros(len(seqs), EVENT_DTYPE)
    events["seq"] = seqs
    events["kind"] = kind
    events["from_block"] = events["to_block"] = -1
    return events


def merge_events(parts: list[Events]) -> Events:
    """All of a thread's events in order. What a gap hides beside itself is left out."""
    events = np.concatenate([events_of(lib.PTM_GAP, np.empty(0, np.int64)), *parts])
    rank = np.zeros(max(_ORDER) + 1, np.int64)
    for kind, place in _ORDER.items():
        rank[kind] = place
    events = events[np.lexsort((rank[events["kind"]], events["seq"]))]
    gaps = events["seq"][events["kind"] == lib.PTM_GAP]
    kept: Events = events[(events["kind"] != lib.PTM_ASYNC) | ~np.isin(events["seq"], gaps)]
    return kept


def interruptions(rows: ThreadRows, thread: int, clock: ThreadRows | None, addresses: Addresses,
                  program: Program) -> Events:
    """Where execution was interrupted and went on elsewhere: a signal handler began, or ended.

    The clock's rows tell when that was, and so the address space an address is in.
    """
    parts = list(_jumps(rows, thread))
    seq: I64 = np.concatenate([np.empty(0, np.int64), *(part[0] for part in parts)])
    source: U64 = np.concatenate([np.empty(0, np.uint64), *(part[1] for part in parts)])
    target: U64 = np.concatenate([np.empty(0, np.uint64), *(part[2] for part in parts)])
    events = events_of(lib.PTM_ASYNC, seq)
    if not len(events):
        return events
    times = bounds(seq, known_moments(clock, thread))[0]
    places = addresses.locate(thread, times, source)
    events["from_block"] = addresses.blocks_at(places, source)
    known = events["from_block"] >= 0
    events["from"] = np.where(known, program.blocks["addr"][np.maximum(events["from_block"], 0)], places)
    events["to_block"] = addresses.blocks_at(addresses.locate(thread, times, target), target)
    return events


def _jumps(rows: ThreadRows, thread: int) -> Iterator[tuple[I64, U64, U64]]:
    """(ordinal, from, to) of every interruption that was not resumed where it happened."""
    pending: tuple[int, int] | None = None  # kind and address of the last event of a batch
    for batch in rows.batches(thread):
        code = _codes(batch)
        seq, ip, target = numbers(batch, "seq"), numbers(batch, "ip").astype(np.uint64), batch.column("target")
        target = np.where(target.is_valid().to_numpy(zero_copy_only=False),
                          numbers(batch, "target").astype(np.uint64), ip)
        known = batch.column("ip").is_valid().to_numpy(zero_copy_only=False)
        here = code != _OTHER
        code, seq, ip, target, known = code[here], seq[here], ip[here], target[here], known[here]
        code = np.where((code == _ASYNC_DISABLED) & ~known, _DISABLED, code)
        before = np.concatenate([[pending[0] if pending else _OTHER], code[:-1]])
        source = np.concatenate([np.array([pending[1] if pending else 0], np.uint64), ip[:-1]])
        resumed = (code == _ENABLED) & (before == _ASYNC_DISABLED) & (target != source) & known
        branch = (code == _ASYNC_BRANCH) & known & (target != ip)
        jumps = resumed | branch
        yield seq[jumps], np.where(branch, ip, source)[jumps], target[jumps]
        if len(code):
            pending = (int(code[-1]), int(ip[-1]))


def _codes(batch: pa.RecordBatch) -> npt.NDArray[np.int8]:
    kinds = batch.column("kind")
    if not pa.types.is_dictionary(kinds.type):
        kinds = kinds.dictionary_encode()
    lookup = np.array([_KINDS.get(str(kind), _OTHER) for kind in kinds.dictionary.to_pylist()] + [_OTHER], np.int8)
    codes: npt.NDArray[np.int8] = lookup[pc.fill_null(kinds.indices, len(lookup) - 1).to_numpy(zero_copy_only=False)]
    return codes
