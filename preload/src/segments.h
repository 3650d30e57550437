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

#include <stdbool.h>

enum { PTW_SEGMENTS = 512, PTW_UNTRACKED = 512, PTW_LIBRARIES = 512, PTW_CODE = 1024, PTW_PATH = 256 };

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
	uint32_t libraries; /* known ones */
	uint32_t codes;
	uint64_t library[PTW_LIBRARIES];
	struct ptw_code { uint64_t start, end, offset; uint32_t protection; char path[PTW_PATH]; } code[PTW_CODE];
};
_Static_assert(sizeof(struct ptw_segments) <= (1 << 20), "ends before what follows");

#define ptw_segment_table ((struct ptw_segments *)PTW_META_SEGMENTS)

/* This thread loaded libraries since: share them before anybody can know of them. */
extern PTW_HIDDEN uint32_t ptw_segments_loaded;
PTW_HIDDEN void ptw_segments_load(void);

/* Nothing is mapped at the address here; map it if it belongs to a library another thread loaded. Signal-safe. */
PTW_HIDDEN bool ptw_segments_admit(uint64_t address);

/* Is the i-th tracked segment mapped in this process? */
PTW_HIDDEN bool ptw_segments_here(uint32_t i);

/* In a fork child whose region was replaced: map everything from there. */
PTW_HIDDEN int ptw_segments_remap(void);

/* Share what is loaded. 0 or negative errno. */
PTW_HIDDEN int ptw_segments_init(void);

#endif
