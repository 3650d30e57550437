# SPDX-License-Identifier: MIT
"""What a perf.data file says of the kernel's tracepoints (HEADER_TRACING_DATA): the fields of sched_switch.

Written after trace-cmd.dat(5), whose beginning it is, and the kernel's events/sched/sched_switch/format.
"""

from __future__ import annotations

import struct

FIELDS = (("unsigned short common_type", 0, 2, 0), ("unsigned char common_flags", 2, 1, 0),
          ("unsigned char common_preempt_count", 3, 1, 0), ("int common_pid", 4, 4, 1), None,
          ("char prev_comm[16]", 8, 16, 0), ("pid_t prev_pid", 24, 4, 1), ("int prev_prio", 28, 4, 1),
          ("long prev_state", 32, 8, 1), ("char next_comm[16]", 40, 16, 0), ("pid_t next_pid", 56, 4, 1),
          ("int next_prio", 60, 4, 1))
"""Type and name, offset, size, whether it is signed; None between those of all events and its own."""

PAGE = (("u64 timestamp", 0, 8, 0), ("local_t commit", 8, 8, 1), ("int overwrite", 8, 1, 1), ("char data", 16, 4080, 0))


def _fields(fields: tuple[tuple[str, int, int, int] | None, ...]) -> str:
    return "".join("\n" if one is None else "\tfield:{};\toffset:{};\tsize:{};\tsigned:{};\n".format(*one)
                   for one in fields)


def _sized(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def tracing_data(number: int) -> bytes:
    """The section of a file with the tracepoint of that number, of a little-endian machine."""
    event = f'name: sched_switch\nID: {number}\nformat:\n{_fields(FIELDS)}\nprint fmt: "%d", REC->next_pid\n'
    head = b"\x17\x08\x44tracing0.6\0" + struct.pack("<BBI", 0, 8, 4096)
    pages = b"header_page\0" + _sized(_fields(PAGE)) + b"header_event\0" + _sized("# compressed entry header\n")
    events = struct.pack("<I", 0) + struct.pack("<I", 1) + b"sched\0" + struct.pack("<I", 1) + _sized(event)
    symbols_formats_names = struct.pack("<IIQ", 0, 0, 0)
    return head + pages + events + symbols_formats_names
