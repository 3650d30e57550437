/* SPDX-License-Identifier: MIT */
/*
 * Where the library begins and ends to have the C library and the loader do something for it: what system calls these
 * make meanwhile are none of the program's. A call that does nothing says so in whatever record of system calls there
 * is, also where the record of execution has a gap (merge/ptweave/merge/own_calls.py).
 */
#ifndef PTW_OWN_WORK_H
#define PTW_OWN_WORK_H

#include "sys.h"

enum ptw_own_work { PTW_OWN_WORK_BEGINS = 0x50540001, PTW_OWN_WORK_ENDS = 0x50540002 };

/* Without a mask the kernel does not look at what is to be done with it (rt_sigprocmask(2)). */
static inline void ptw_own_work(enum ptw_own_work what)
{
	PTW_SYS(SYS_rt_sigprocmask, what, 0, 0, sizeof(uint64_t), 0, 0);
}

#endif
