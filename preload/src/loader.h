/* SPDX-License-Identifier: MIT */
/*
 * Process mode: the loader, and libraries that threads load while the program runs.
 *
 * The loader's data is shared by all processes, and so are its locks: they are marked process-shared. A library that
 * one process loads is mapped there alone; its data is shared before dlopen returns, code and data are mapped elsewhere
 * when they are first used there (segments.h). Libraries that the C library loads by itself (conversions, name
 * services) and those that the calling library's own search path may find are shared at the thread's next boundary.
 *
 * Nothing is unloaded: other processes have it, too.
 */
#ifndef PTW_LOADER_H
#define PTW_LOADER_H

#include "sys.h"

#include <link.h>
#include <stdbool.h>

/* In the first process: find the loader's locks. 0 or negative errno. */
PTW_HIDDEN int ptw_loader_init(void);

/* This process's loader allocated it (as large as a library's description), or did not. */
PTW_HIDDEN void ptw_loader_allocated(const void *block);
PTW_HIDDEN bool ptw_loader_made(const struct dl_phdr_info *info);

/* This process has a copy of data that the process which loaded them may share later. Signal-safe. */
PTW_HIDDEN void ptw_loader_copied(void);

/* Not 0: there is something to do at a boundary. Libraries that this process loaded are shared, copies of what others
 * share by now are given up. */
extern PTW_HIDDEN uint32_t ptw_loader_pending;
PTW_HIDDEN void ptw_loader_share(void);

/* In a fork child: nobody else is in the loader. */
PTW_HIDDEN void ptw_loader_alone(void);

enum { PTW_LINK_MAP_LEAST = 1000 }; /* bytes: no library's description is smaller */

#endif
