/* SPDX-License-Identifier: MIT */
/*
 * Programs that are started with another LD_PRELOAD than ours (`env LD_PRELOAD=libjemalloc.so prog`, scripts that set it)
 * get libtthread before it. Those that are to have no LD_PRELOAD, or none of our environment, go without: that is told.
 *
 * An environment is changed only if it has PTW_SOCKET_VARIABLE and an LD_PRELOAD that does not name libtthread, and if the
 * change takes PTW_KEPT_MOST bytes at most; in memory of the caller's. Async-signal-safe after init.
 */
#ifndef PTW_KEPT_PRELOAD_H
#define PTW_KEPT_PRELOAD_H

#include "sys.h"

#include <alloca.h>
#include <stddef.h>

enum { PTW_KEPT_MOST = 1 << 14 };

/* Find out how this process's LD_PRELOAD (NULL: it has none) names libtthread. */
PTW_HIDDEN void ptw_kept_preload_init(const char *preload);

/* Bytes that the changed environment takes; 0: it is as it is to be. */
PTW_HIDDEN size_t ptw_kept_preload_room(char *const *environment);

/* The changed environment, in `bytes` of room: what has not changed is shared with the one before. The one before, if another
 * thread has changed it meanwhile. */
PTW_HIDDEN char *const *ptw_kept_preload(char *const *environment, void *room, size_t bytes);

/* To the end of the function. */
#define PTW_KEEP_PRELOAD(environment)                                                          \
	do {                                                                                   \
		size_t bytes_ = ptw_kept_preload_room(environment);                            \
		if (bytes_)                                                                    \
			(environment) = ptw_kept_preload(environment, alloca(bytes_), bytes_); \
	} while (0)

#endif
