# SPDX-License-Identifier: MIT
"""`dependence/<thread>.evl`: the event list of one thread, as libtthread logged it.

Little-endian; a 64-byte header, then records back to back, each a multiple of 8 bytes long. A thread that execs
begins a new section: a header again (its magic stands where a record's size would), then the new image's records.

    header   u64 magic "PTWEVL1\\0"; u32 pid, tid; i32 thread; u32 flags; u64 tsc (thread's start);
             u64 marker (address of the marker function); u64 start_routine (0 for a main thread); u64 lost; u64 0
    record   u32 size (bytes, this word included); u16 operation; u16 frames; u64 tsc_enter, tsc_exit;
             u64 object; i64 result; u64 object_version; u64 argument; u64 stack[frames] (innermost first)

`operation` is an `Operation`. Every record but those of accesses is the beginning of a thunk. `object_version` counts
the releases of the object: for a release the version it made, for an acquire the version it saw (it joins all releases
up to that one); 0 when there is none, or the object found no place in the process's table. A release took `tsc_enter`
before it made its version and `tsc_exit` after that; an acquire took `tsc_exit` after it saw its version.
`flags`: bits 0–7 the kind of handshake (`ptweave.data.handshake.Hello`), bits 8–31 the process image's number in the
run: objects, versions and serials below mean the same within one image.
`lost` counts records that had no room, or that a signal handler jumped away from. Bit 0 of a record's `size` is set
while it is being written: a record that still has it was never finished, and its content means nothing.

`result` is 0 or the error number (errno for semaphores); the child's pid or −errno for fork; −1 for
PTHREAD_BARRIER_SERIAL_THREAD. `stack` holds return addresses; of a frame that a signal interrupted, one more than the
interrupted address, so that every element less one lies in the instruction that was left.

What `object`, `object_version` and `argument` are, where that is not the object, its version and 0:

    start           pthread_t (0: a fork child); serial of the create or fork that made it (0 unknown); creator's tid
    create          pthread_t; serial given to the new thread (0 failed); its tid (0 unknown)
    join            pthread_t; serial of the thread joined (0 unknown or failed); its tid
    detach          pthread_t; 0; tid of that thread
    exit            pthread_t; the thread's own serial; 0
    fork            0; serial of the fork (0 failed); pid of the child (0 unknown)
    cond_wait, cond_timedwait       the condition; its version; the mutex
    cond_wait_begin, cond_relock    the mutex; its version; the condition
    barrier_arrive  the barrier; the version this arrival made; its count (0 unknown)
    access_read, access_write       first address accessed; 0; pages opened by it, from the page it is in (a window);
                    at most 1024
    access_end      address of a page; 0; pages closed from there on (object and argument 0: all that were open)
    access_commit   address of a page; the page's version this made; bytes of it that were changed
    allocation      first byte that the heap took for it; 0; bytes taken
    barrier_wait    the barrier; arrivals up to then; its count, with bit 63 set in the serial thread

Accesses (process mode only) lie between the records that begin thunks. A page is open from the access that opened it
until an `access_end` that covers it: to the thread's thunks in between it was readable, after `access_write` writable
too, and no further access of it was seen. `stack` begins with the accessing instruction's address plus one; for a
system call it is the call's. An open page that never ends was open until the thread ended. The own stack is always
open, and not logged. Accesses have a marker function of their own, `ptweave_mark_access`, which no header names.

The private view (manifest: `view`) logs an `access_commit` for each page that a thunk changed, within that thunk: its
`stack` is no stack but says which bytes. With `result` > 0 that many runs, two in a word, the first in the low half;
a run is u16 offset in the page, u16 length (not 0; runs ascend and do not touch). With `result` 0 the words are a
bitmap of 64 words: bit b of word w is byte 64 w + b. A byte that was written and holds what it held before is not in
it. A page that is passed through (atomics, --shared) has no commits: `result` of its accesses is 1 instead of 0.

The heap of process mode gives memory out in units of 64 KiB. An `allocation` says which call made it take some: a
block too large to share a unit, a private mapping, or the first block of units for blocks of one size, of one thread;
the later ones in these say nothing. `stack` begins with that call's return address.

A barrier's versions begin a generation at a multiple of its count: (version − 1) // count numbers it.
"""

from __future__ import annotations

import struct
from enum import IntEnum

EVL_MAGIC = b"PTWEVL1\0"
EVL_HEADER_SIZE = 64
EVL_RECORD_SIZE = 56  # without the stack
EVL_MAX_FRAMES = 64
EVL_OPEN = 1  # bit of a record's size: begun and not finished
EVL_HEADER = struct.Struct("<8sIIiIQQQQQ")
EVL_LOST_OFFSET = 48  # of `lost` in the header
EVL_RECORD = struct.Struct("<IHHQQQqQQ")
BARRIER_SERIAL = 1 << 63
WINDOW_MAX = 1024  # pages one access may open


class Operation(IntEnum):
    """What began a thunk; from FIRST_ACCESS to LAST_ACCESS what was accessed. Kept equal to `enum ptw_operation` in
    preload/src/event.h by a test."""

    START = 1  # the thread (or process, or fork child) begins
    EXIT = 2
    CREATE = 3
    JOIN = 4
    MUTEX_LOCK = 5
    MUTEX_TRYLOCK = 6
    MUTEX_TIMEDLOCK = 7
    MUTEX_UNLOCK = 8
    COND_WAIT = 9
    COND_TIMEDWAIT = 10
    COND_SIGNAL = 11
    COND_BROADCAST = 12
    BARRIER_WAIT = 13
    RDLOCK = 14
    TRYRDLOCK = 15
    TIMEDRDLOCK = 16
    WRLOCK = 17
    TRYWRLOCK = 18
    TIMEDWRLOCK = 19
    RWUNLOCK = 20
    SEM_WAIT = 21
    SEM_TRYWAIT = 22
    SEM_TIMEDWAIT = 23
    SEM_POST = 24
    SPIN_LOCK = 25
    SPIN_TRYLOCK = 26
    SPIN_UNLOCK = 27
    COND_WAIT_BEGIN = 28  # releases the mutex on the way into a condition wait
    BARRIER_ARRIVE = 29  # publishes the clock on the way into a barrier
    FORK = 30
    DETACH = 31
    COND_RELOCK = 32  # acquires the mutex on the way out of a condition wait
    ACCESS_READ = 33  # a page was read for the first time since it was closed
    ACCESS_WRITE = 34  # written, after it was closed or only read
    ACCESS_END = 35  # pages were closed
    ACCESS_COMMIT = 36  # bytes of a page were changed, and are the other threads' from now on (private view)
    ALLOCATION = 37  # the heap took memory for somebody
    ONCE = 38  # pthread_once, call_once: the routine has run, here or by another thread (then waited for)
    ONCE_DONE = 39  # the same in the thread that ran it: entered when the routine was done
    TEAM = 40  # OpenMP: a parallel region is about to begin; `argument`: how many it asks for (0: the default)
    TEAM_BEGIN = 41  # a member of its team begins; `result`: its number, `argument`: how many there are
    TEAM_END = 42  # it has done the region's body
    TEAM_JOIN = 43  # all have: the region is over
    TASK = 44  # OpenMP: a task is about to be made
    TASK_BEGIN = 45  # it runs, in whichever thread of the team
    TASK_END = 46
    TASK_WAIT = 47  # tasks were waited for; or one that depends on others begins


FIRST_ACCESS = Operation.ACCESS_READ
LAST_ACCESS = Operation.ALLOCATION
"""These records and those in between begin no thunk."""
