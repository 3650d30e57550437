# SPDX-License-Identifier: MIT
"""What kinds of packets a trace holds: counted in C, from the first PSB on, forward to the next PSB after an error."""

from __future__ import annotations

from dataclasses import dataclass

from ptweave.data.errors import MachineLacks
from ptweave.decode._ipt import ffi, lib


@dataclass(frozen=True)
class PacketCounts:
    """`by_kind` has the kinds that occur, called as ptdump calls them; what is not known is None."""

    packets: int
    by_kind: dict[str, int]
    errors: int
    first_sync: int | None
    tnt_bits: int
    tnt_taken: int
    cyc_sum: int
    tsc_first: int | None
    tsc_last: int | None


def count_packets(trace: bytes) -> PacketCounts:
    """Count the packets of a trace. Raises MachineLacks when memory runs out."""
    counts = ffi.new("struct ptd_packet_counts *")
    if lib.ptd_packets_count(ffi.from_buffer("uint8_t[]", trace), len(trace), counts) < 0:
        raise MachineLacks("is out of memory", where="the packet decoder", remedy="free some memory")
    by_kind = {ffi.string(lib.ptd_packet_name(kind)).decode(): int(counts.by_kind[kind])
               for kind in range(lib.PTD_PACKET_KINDS) if counts.by_kind[kind]}
    timed = "tsc" in by_kind
    return PacketCounts(int(counts.packets), by_kind, int(counts.errors),
                        None if counts.first_sync == (1 << 64) - 1 else int(counts.first_sync),
                        int(counts.tnt_bits), int(counts.tnt_taken), int(counts.cyc_sum),
                        int(counts.tsc_first) if timed else None, int(counts.tsc_last) if timed else None)
