# SPDX-License-Identifier: MIT
"""Holes in the record as rows of `gaps`, each saying what exactly is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ptweave.decode._ipt import ffi, lib
from ptweave.decode.columns import array, coded
from ptweave.decode.plan import Lost, Thread
from ptweave.decode.ranges import Range


class GapKind(StrEnum):
    """`gaps.kind`."""

    DECODE_ERROR = "decode_error"
    OVERFLOW = "overflow"
    MISSING_IMAGE = "missing_image"
    TRUNCATED = "truncated"
    LOST = "lost"
    NO_TRACE = "no_trace"


FOUND = (GapKind.DECODE_ERROR, GapKind.OVERFLOW, GapKind.MISSING_IMAGE, GapKind.TRUNCATED)
"""Names of `enum ptd_gap`, in its order."""


class Reason(IntEnum):
    """`enum ptd_reason`: reasons that are not libipt's."""

    OVERFLOW = 1000
    NO_PSB_YET = 1001
    NO_PSB = 1002
    CUT_PACKET = 1003
    NO_PROGRESS = 1004
    STOP_MISSED = 1005
    STOP_WHILE_OFF = 1006
    GUEST = 1007


NO_MAP = 13  # libipt's pte_nomap

WORDS = {
    Reason.OVERFLOW: "the processor dropped packets (OVF); how many is not known",
    Reason.NO_PSB_YET: "the trace begins in mid-stream: nothing can be decoded before its first PSB",
    Reason.NO_PSB: "no PSB in these bytes: nothing can be decoded",
    Reason.CUT_PACKET: "the trace ends in the middle of a packet",
    Reason.NO_PROGRESS: "the code runs in circles without a branch that could use the packets that follow",
    Reason.STOP_MISSED: "the code does not lead to the address at which the next PSB says that execution stood",
    Reason.STOP_WHILE_OFF: "tracing was off, and the next PSB says that execution stood at an address",
    Reason.GUEST: "a virtual machine's guest ran here: its code is not in the recording",
}


@dataclass(frozen=True)
class Lacking:
    """Code that cannot be decoded from address `start` to `end`; `why`: in words."""

    start: int
    end: int
    why: str


@dataclass(frozen=True)
class Gap:
    """A hole the decoder's C half does not know of."""

    kind: GapKind
    offset: int
    size: int
    detail: str


def no_trace() -> Gap:
    return Gap(GapKind.NO_TRACE, 0, 0, "the thread has no trace file")


def lost(known: Lost) -> Gap:
    return Gap(GapKind.LOST, known.offset, known.size, known.detail)


def no_slice(part: Range) -> Gap:
    return Gap(GapKind.MISSING_IMAGE, part.begin, part.end - part.begin,
               "the sideband does not say in which address space these packets were made")


def after_end(thread: Thread) -> Gap:
    return Gap(GapKind.TRUNCATED, thread.end, thread.size - thread.end, "bytes after the trace's orderly end")


def table(rows: Any, missing: Callable[[int], list[Lacking]]) -> pa.Table:
    """The gaps of one step; `missing` says, by address, what is lacking in the space that was in force at a time."""
    n = rows.gap_count
    tsc = array(None, rows.gap_tsc, n, pa.uint64())
    reasons = array(None, rows.gap_reason, n, pa.int32())
    ips = array(None, rows.gap_ip, n, pa.uint64(), rows.valid_gap_ip)
    return pa.table({
        "seq": array(None, rows.gap_seq, n, pa.int64()),
        "tsc": tsc,
        "kind": coded(array(None, rows.gap_kind, n, pa.int8()), FOUND).cast(pa.string()),
        "bytes": array(None, rows.gap_bytes, n, pa.int64()),
        "offset": array(None, rows.gap_offset, n, pa.uint64()),
        "ip": ips,
        "detail": _all_details(reasons.to_numpy(), np.asarray(ips.fill_null(0)), tsc.to_numpy(), missing),
    })


def _all_details(reasons: npt.NDArray[np.int32], ips: npt.NDArray[np.uint64], tsc: npt.NDArray[np.uint64],
                 missing: Callable[[int], list[Lacking]]) -> pa.Array:
    """What exactly, for each gap: those of one space at once."""
    groups: dict[int, tuple[list[Lacking], list[int]]] = {}
    for row, time in enumerate(tsc.tolist()):
        found = missing(time)
        groups.setdefault(id(found), (found, []))[1].append(row)
    texts: list[str] = [""] * len(tsc)
    for found, rows in groups.values():
        for row, text in zip(rows, _details(reasons[rows], ips[rows], found).to_pylist(), strict=True):
            texts[row] = text
    return pa.array(texts, pa.string())


def _details(reasons: npt.NDArray[np.int32], ips: npt.NDArray[np.uint64], missing: list[Lacking]) -> pa.Array:
    """What exactly, for each gap: texts are made once for each distinct reason and mapping."""
    starts = np.array([mapping.start for mapping in missing], np.uint64)
    ends = np.array([mapping.end for mapping in missing], np.uint64)
    which = np.searchsorted(starts, ips, side="right") - 1
    if len(missing):
        which[(which >= 0) & (ips >= ends[which])] = -1
    which[reasons != NO_MAP] = -1
    pairs, codes = np.unique(np.stack([reasons.astype(np.int64), which]), axis=1, return_inverse=True)
    texts = [_text(int(reason), missing[mapping] if mapping >= 0 else None) for reason, mapping in pairs.T]
    return pa.DictionaryArray.from_arrays(pa.array(codes.reshape(-1).astype(np.int32)), pa.array(texts))


def _text(reason: int, lacking: Lacking | None) -> str:
    if reason in WORDS:
        return WORDS[Reason(reason)]
    words = ffi.string(lib.ptd_error_text(reason)).decode("ascii", "replace")
    if reason != NO_MAP:
        return words
    return f"{words}: {'the sideband knows no code there' if lacking is None else lacking.why}"
