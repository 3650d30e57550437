# SPDX-License-Identifier: MIT
"""`dependence/<thread>.evl`: the event list of one thread, as libtthread logged it.

Little-endian; a 64-byte header, then records back to back, each a multiple of 8 bytes long:

    header   u64 magic "PTWEVL1\\0"; u32 pid, tid; i32 thread; u32 flags; u64 tsc (thread's start);
             u64 marker (address of the marker function); u64 start_routine (0 for a main thread); u64 lost; u64 0
    record   u32 size (bytes, this word included); u16 operation; u16 frames; u64 tsc_enter, tsc_exit;
             u64 object; i64 result; u64 object_version; u64 argument; u64 stack[frames] (innermost first)

`operation` is an `Operation`. Every record is the beginning of a thunk. `object_version` counts the releases of the
object: for a release the version it made, for an acquire the version it saw (it joins all releases up to that one).
`argument` depends on the operation: the mutex of a condition wait; for create, join and start the tid of the other
thread; the barrier's count for barrier_wait (with bit 63 set in the thread that got PTHREAD_BARRIER_SERIAL_THREAD).
`lost` counts records that had no room.
"""

from __future__ import annotations

from enum import IntEnum

EVL_MAGIC = b"PTWEVL1\0"
EVL_HEADER_SIZE = 64
EVL_RECORD_SIZE = 56  # without the stack


class Operation(IntEnum):
    """What began a thunk. Kept equal to `enum ptw_operation` in preload/src/event.h by a test."""

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
