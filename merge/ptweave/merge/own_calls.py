# SPDX-License-Identifier: MIT
"""Which system calls are libtthread's own: they are no part of what the program did."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ptweave.data import syscall_table
from ptweave.merge._merge import lib
from ptweave.merge.addresses import Addresses
from ptweave.merge.program import IMAGE_SHIFT, Program
from ptweave.merge.tables import I32, I64, U64, Bools

OWN_WORK = ("begin_process", "ptw_threading_begin", "ptw_servant_start")
"""Functions (preload/src) that have the C library and the loader do something for libtthread: what these do is its
own."""

SIGN = syscall_table.NUMBERS["rt_sigprocmask"]
BEGINS, ENDS = 0x50540001, 0x50540002
"""First arguments of SIGN with which those functions say that they begin and end (preload/src/own_work.h)."""

ANY: tuple[str, ...] = ()

ON_BEHALF = {
    "syscall": ANY, "ptw_raw_call": ANY, "split": ("clone",), "split_locked": ("clone",),
    "vfork": ("vfork",), "ptw_vfork_split": ("clone",), "ptw_control_kill": ("tgkill",), "ptw_exec_serve": ("execve",),
    "ptw_close_part": ("close_range",), "close_each": ("close",),
    "ptw_change_ids": ("setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setgroups"),
    "copy": ("process_vm_readv", "process_vm_writev"),
    "sigpending": ("rt_sigpending",), "getppid": ("getppid",), "times": ("times",), "timer_create": ("timer_create",),
    "asked_limit": ("prlimit64",), "ptw_get_usage": ("getrusage",),
    **{name: (name,) for name in ("brk", "madvise", "mlock", "mlock2", "mlockall", "mmap", "mprotect", "mremap",
                                  "msync", "munlock", "munmap", "pkey_alloc", "pkey_mprotect", "tgkill")}}
"""Functions that make calls which the program asked for: these, or ANY."""

EXIT_GROUP = syscall_table.NUMBERS["exit_group"]


def signs_of(calls: I64, firsts: I64) -> I32:
    """Of calls by number and first argument: BEGINS, ENDS, or 0 for those that are no signs."""
    return np.where((calls == SIGN) & ((firsts == BEGINS) | (firsts == ENDS)), firsts, 0).astype(np.int32)


def makes_between(own: Bools, signs: I32) -> Bools:
    """Of system calls of a thread in their order, by whether libtthread's code makes them for itself and by `signs_of`:
    which lie from a sign of its own to the one that belongs to it, with both. Signs that lack the other say nothing."""
    found = np.zeros(len(signs), np.bool_)
    begun: list[int] = []
    for at in np.flatnonzero(own & (signs != 0)):
        if signs[at] == BEGINS:
            begun.append(int(at))
        elif begun:
            found[begun.pop():at + 1] = True
    return found


class Library:
    """libtthread's code in a run: the image that holds the thunk marker. Flags the program's blocks (PTM_OWN)."""

    def __init__(self, program: Program, addresses: Addresses) -> None:
        self._program = program
        self._addresses = addresses
        blocks = program.blocks
        image = blocks["addr"] >> np.uint64(IMAGE_SHIFT)
        self._images = np.unique(image[(blocks["flags"] & lib.PTM_MARKER) != 0])
        work = np.array([name in OWN_WORK for name in program.functions])[blocks["function"]]
        blocks["flags"][work & np.isin(image, self._images)] |= lib.PTM_OWN
        self._behalf = {number: name for number, name in enumerate(program.functions) if name in ON_BEHALF}

    def makes(self, thread: int, times: I64, ips: U64, calls: I64) -> Bools:
        """Of system calls (by number) at addresses, which libtthread's code makes for itself."""
        place = self._addresses.locate(thread, times, ips)
        own: Bools = (place != 0) & np.isin(place >> np.uint64(IMAGE_SHIFT), self._images) & (calls != EXIT_GROUP)
        function = self._addresses.functions_at(place)
        for number, name in self._behalf.items():
            asked = [syscall_table.NUMBERS[call] for call in ON_BEHALF[str(name)]]
            own &= (function != number) | (~np.isin(calls, asked) if asked else False)
        return own

    def during(self, visits: npt.NDArray[np.void], seqs: I64) -> Bools:
        """Of places in a thread's flow, which lie in its own work: from such a function's first block to its last."""
        found = np.zeros(len(seqs), np.bool_)
        work = visits[visits["kind"] == lib.PTM_VISIT_OWN]
        block = self._program.blocks[work["block"]]
        for function in np.unique(block["function"]):
            here = block["function"] == function
            seq, entry = work["seq"][here], (block["flags"][here] & lib.PTM_ENTRY) != 0
            begins = np.flatnonzero(entry)
            ends = np.append(begins[1:] - 1, len(seq) - 1) if len(begins) else begins
            for begin, end in zip(seq[begins], seq[ends], strict=True):
                found |= (seqs >= begin) & (seqs <= end)
        return found
