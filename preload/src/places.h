/* SPDX-License-Identifier: MIT */
/*
 * Process mode: where the kernel puts what a process maps by itself. The C library and the loader map memory without
 * asking us (libraries, locales, conversions). Were it left to the kernel, two processes would have different things at
 * one address, and a pointer would mean one thing here and another there. So each process has a range of addresses of
 * its own that the kernel chooses from: all others are taken by a mapping that cannot be accessed.
 *
 * Under a software engine, which chooses for the kernel, it is the same, and in the kernel's other layouts. Where there
 * is no room for such ranges nothing is done.
 */
#ifndef PTW_PLACES_H
#define PTW_PLACES_H

#include "sys.h"

#include <stdbool.h>

/* In the first process, when all that every process shall have is mapped. */
PTW_HIDDEN void ptw_places_init(void);

/* In a new one: a range of its own. */
PTW_HIDDEN void ptw_places_begin(void);

/* In a fork child: this process is the main thread's now. */
PTW_HIDDEN void ptw_places_forked(void);

/* The thread ends: what was mapped in its range is left to the others, and they may map it when they need it. */
PTW_HIDDEN void ptw_places_end(void);

/* May another process have something there that this one has not? */
PTW_HIDDEN bool ptw_places_contain(uint64_t address);

/* For mmap, of what another has there and this one has not: over what keeps the place, or where nothing is. */
PTW_HIDDEN int ptw_places_flags(uint64_t address);

#endif
