# SPDX-License-Identifier: MIT
"""The memfd of event lists and notices that a process shares with the supervisor.

preload/src/lists.h has the same; a test keeps them equal.

    head         4096 bytes, `LISTS_HEAD`
    descriptors  LIST_COUNT of `LIST_DTYPE`, 64 bytes each
    notices      NOTICES of `NOTICE_DTYPE`, 512 bytes each (`ptweave.data.notices` says what they mean)
    lists        LIST_COUNT of LIST_SIZE bytes: records as in `ptweave.data.evl`, from `drained` up to `committed`

The memfd is sealed in its size (F_SEAL_SHRINK, F_SEAL_GROW), so that a mapping of it cannot raise SIGBUS. A list's
owner writes its descriptor while it is OPEN; afterwards only the supervisor does: it copies the list, zeroes it and
the descriptor, makes it FREE, and counts that in `freed`. Producers that find no free list wait while `freed` grows,
and drop (and count) after PATIENCE_SECONDS without. Stores become visible in order on x86-64.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

LISTS_MAGIC = int.from_bytes(b"PTWLST1\0", "little")
LIST_SIZE = 1 << 20
LIST_COUNT = 1024
LIST_BACKLOG = 64
LISTS_HEAD_SIZE = 4096
NOTICES = 128
NOTICES_AT = LISTS_HEAD_SIZE + LIST_COUNT * 64
LISTS_DATA = NOTICES_AT + NOTICES * 512
LISTS_BYTES = LISTS_DATA + LIST_COUNT * LIST_SIZE
LIST_NONE = 0xFFFFFFFF
PATIENCE_SECONDS = 5


class ListState(IntEnum):
    FREE = 0
    OPEN = 1  # its owner writes to it
    FULL = 2  # handed over; the owner goes on in another list
    LAST = 3  # handed over by a thread that has ended


LISTS_HEAD = np.dtype([
    ("magic", "<u8"), ("list_size", "<u4"), ("list_count", "<u4"),
    ("high", "<u4"),  # lists [0, high) were ever used
    ("live", "<u4"),  # lists that are OPEN
    ("unlisted", "<u8"),  # records lost by threads that own no list
    ("untracked", "<u8"),  # records whose object found no place in the object table
    ("notices", "<u4"),  # entries claimed
    ("notices_lost", "<u4"),  # notices that found the table full
    ("zero", "<u8", (2,)),
    ("freed", "<u8"),  # lists the supervisor gave back, ever
])

LIST_DTYPE = np.dtype([
    ("state", "<u4"), ("tid", "<u4"),
    ("serial", "<u8"),  # of its thread, unique in the process image; 0: being claimed
    ("sequence", "<u8"),  # n-th list of that thread
    ("reserved", "<u8"),  # bytes given out to records
    ("committed", "<u8"),  # bytes below which every record is finished
    ("count", "<u8"),  # records finished
    ("attempts", "<u8"),  # records wanted
    ("lost", "<u8"),  # records that had no room, or that a signal handler jumped away from
])
assert LIST_DTYPE.itemsize == 64

NOTICE_TOLD = 2
"""State of a notice that is there entirely."""
NOTICE_PLACE = np.dtype([
    ("address", "<u8"),  # 0: none
    ("offset", "<u8"),  # as the file's own addresses have it
    ("path", "S160"),  # as the loader knows it
    ("known", "<u4"), ("zero", "<u4"),
])
NOTICE_DTYPE = np.dtype([
    ("state", "<u4"), ("kind", "<u4"), ("tid", "<u4"), ("zero", "<u4"),
    ("code", NOTICE_PLACE), ("object", NOTICE_PLACE), ("text", "S128"),
])
assert NOTICE_DTYPE.itemsize == 512
