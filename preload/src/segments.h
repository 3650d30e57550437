/* SPDX-License-Identifier: MIT */
/*
 * Process mode: writable data of the executable and its libraries becomes part of the shared memory, where it lies.
 *
 * Tracked: data of the executable and of every library but these: the C library's (shared, never closed: its code runs
 * with signals blocked and hands its own buffers to the kernel), the loader's and ours (a copy for each process). The
 * main thread's thread-local storage is shared too, untracked, so that pointers to it work anywhere.
 *
 * For the first process, with one thread and signals blocked.
 */
#ifndef PTW_SEGMENTS_H
#define PTW_SEGMENTS_H

#include "layout.h"
#include "sys.h"

enum { PTW_SEGMENTS = 512, PTW_UNTRACKED = 8 };

/* A tracked one. */
struct ptw_segment {
	uint64_t start;
	uint64_t end;
	uint64_t page; /* number of its first page */
};

struct ptw_segments {
	uint32_t count;
	uint32_t zero;
	uint64_t used;      /* bytes of the memfd's data part */
	uint64_t libc_used; /* of its part for untracked data */
	struct ptw_segment segment[PTW_SEGMENTS];
	struct { uint64_t start, end, offset; } untracked[PTW_UNTRACKED]; /* ends where start is 0 */
};

#define ptw_segment_table ((struct ptw_segments *)PTW_META_SEGMENTS)

/* In a fork child whose region was replaced: map everything from there. */
PTW_HIDDEN int ptw_segments_remap(void);

/* Share what is loaded. 0 or negative errno. */
PTW_HIDDEN int ptw_segments_init(void);

#endif
