# SPDX-License-Identifier: MIT
"""Holds what a flight recorder kept, which begins in mid-stream, against what the module says ran in each part."""

from __future__ import annotations

from lab.exact import gaps
from lab.machine import Job
from ptweave.data import Bundle
from ptweave.decode.dump import Form, Moment, dump_flow
from support.dumping import flow_lines

NOT_KEPT = "in no snapshot (at least: the kernel does not count what it overwrites)"


def address_hash(addresses: list[int]) -> int:
    """As the module reckons it."""
    mask, found = (1 << 64) - 1, 0
    for address in addresses:
        found = (found ^ address) * 0x9E3779B97F4A7C15 & mask
        found ^= found >> 29
    return found


def addresses(bundle: Bundle, thread: str = "0") -> list[int]:
    return [int(line, 16) for line in flow_lines(bundle, Form.IPS, threads=[thread])[0]]


def parts(job: Job) -> list[tuple[int, int]]:
    """Count and hash of what the program executed each time it was told to."""
    found = []
    while (job.folder / f"part{len(found)}").exists():
        (ran,) = job.executed(f"part{len(found)}")
        found.append((ran.count, ran.hash))
    return found


def check_is_the_end_of(found: list[int], wanted: list[tuple[int, int]]) -> int:
    """`found` ends with these parts, or begins inside one; all execute the same. Returns how many whole ones it has."""
    whole, end = 0, len(found)
    pattern: list[int] = []
    for count, digest in reversed(wanted):
        if end < count:
            assert end == 0 or pattern[-end:] == found[:end]
            return whole
        pattern = found[end - count:end]
        assert address_hash(pattern) == digest
        end -= count
        whole += 1
    assert end == 0
    return whole


def addresses_between(bundle: Bundle, begin: int, end: int | None) -> list[int]:
    """Of the blocks `begin` to `end` of the first thread."""
    text: list[bytes] = []
    dump_flow(bundle, Form.IPS, lambda part: text.append(bytes(part)), ["0"], Moment(seq=begin),
              None if end is None else Moment(seq=end))
    return [int(line, 16) for line in b"".join(text).split()]


def stretches(bundle: Bundle) -> list[list[int]]:
    """The addresses of each that begins in mid-stream: where the gaps say."""
    begins = [int(str(gap["seq"])) for gap in gaps(bundle) if str(gap["detail"]).endswith("were overwritten")]
    return [addresses_between(bundle, begin, end)
            for begin, end in zip(begins, [*begins[1:], None], strict=True)]
