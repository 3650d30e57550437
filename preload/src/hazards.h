/* SPDX-License-Identifier: MIT */
/*
 * Process mode: calls that it cannot carry, or that look at the program from outside the C library. They are made as
 * asked, and told once for each place (notice.h). docs/libtthread.md lists them.
 *
 * Signal-safe.
 */
#ifndef PTW_HAZARDS_H
#define PTW_HAZARDS_H

#include "sys.h"

/* A system call made through syscall(), or by an instruction of the program's, at `code`. */
PTW_HIDDEN void ptw_hazard(long number, const long *argument, const void *code);

#endif
