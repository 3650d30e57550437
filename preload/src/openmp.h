/* SPDX-License-Identifier: MIT */
/*
 * Process mode: the futexes of GCC's OpenMP (libgomp), from the start or loaded while the program runs. It waits for its
 * threads and wakes them by system calls of its own, on futexes that it says are private to the process; what it says is in
 * two variables, which are not private from then on. It has read what it waits for just before it waits, and has written it
 * just before it wakes, so that the kernel finds the page open. Not in the private view, in which it would wait on its own
 * copy. LLVM's and Intel's wait by the C library's functions, and by atomics, and so not in that view either. What their
 * functions order is openmp_team.h's.
 */
#ifndef PTW_OPENMP_H
#define PTW_OPENMP_H

#include "sys.h"

#include <link.h>
#include <stdbool.h>

/* Is it GCC's, LLVM's or Intel's OpenMP, by its name? */
PTW_HIDDEN bool ptw_is_openmp(const char *path);

/* A library's futexes are the program's from now on, where it has any. False: it is another one, or not as we know it. */
PTW_HIDDEN bool ptw_openmp_share(const struct dl_phdr_info *info);

/* The same for one that was loaded just now. */
PTW_HIDDEN bool ptw_openmp_share_late(const struct link_map *map);

#endif
