/* SPDX-License-Identifier: MIT */
/*
 * Process mode: writable data of the executable and its libraries becomes part of the shared memory, where it lies.
 *
 * Tracked: data of the executable and of every library but these: the C library's and the loader's (shared, never
 * closed: their code runs with signals blocked and hands its own buffers to the kernel), and ours (a copy for each
 * process). Whatever else is mapped and writable when process mode begins is shared, untracked: the main thread's
 * thread-local storage, what the loader and constructors allocated, and main's first stack with arguments and
 * environment (untracked.h).
 *
 * For the first process, with one thread and signals blocked; what is loaded later is loader.h's.
 */
#ifndef PTW_SEGMENTS_H
#define PTW_SEGMENTS_H

#include "layout.h"
#include "sys.h"

#include <stdbool.h>

/* Where a process may have no more than 65530 mappings, as systems are set up, these are more than it can load. */
enum {
	PTW_LIBRARIES = 16384,
	PTW_SEGMENTS = PTW_LIBRARIES,
	PTW_UNTRACKED = 2 * PTW_LIBRARIES,
};



/* A tracked one. */
struct ptw_segment {
	uint64_t start;
	uint64_t end;
	uint64_t page; /* number of its first page */
	uint64_t bound_from, bound_to; /* where the loader enters functions at their first call: in each process, the same */
};

struct ptw_segments {
	uint32_t count;
	uint32_t libraries; /* known ones */
	uint64_t used;      /* bytes of the memfd's data part */
	uint64_t libc_used; /* of its part for untracked data */
	struct ptw_segment segment[PTW_SEGMENTS];
	struct { uint64_t start, end, offset; } untracked[PTW_UNTRACKED]; /* ends where start is 0 */
	uint64_t library[PTW_LIBRARIES];
};
_Static_assert(sizeof(struct ptw_segments) <= PTW_META_SEGMENTS_SIZE, "fits its place");

#define ptw_segment_table ((struct ptw_segments *)PTW_META_SEGMENTS)

/* Share the libraries that this process loaded since. Under the lock of loader.h. 0 or negative errno. */
PTW_HIDDEN int ptw_segments_load(void);

/* Is there room for a library with some others? */
PTW_HIDDEN bool ptw_segments_room(void);

/* Of all that is shared. What is counted can be had by now. */
PTW_HIDDEN uint64_t ptw_segments_bytes(void);

/* Map everything here that other processes' libraries need. Signal-safe. */
PTW_HIDDEN void ptw_segments_catch_up(void);

/* This process ends: what it has mapped in the range is left to those that stay. */
PTW_HIDDEN void ptw_segments_leave(uint64_t start, uint64_t end);

/* The mapping around an address, of which nothing is in use at the moment, is shared. */
PTW_HIDDEN void ptw_segments_share_around(const void *address);

/* Nothing is mapped at the address here; map it if it belongs to a library another thread loaded. Signal-safe. */
PTW_HIDDEN bool ptw_segments_admit(uint64_t address);

/* Is the i-th tracked segment mapped in this process? */
PTW_HIDDEN bool ptw_segments_here(uint32_t i);

/* Does the program's procedure linkage table take its addresses from this page? They are data of the loader, and lie
 * with the program's own unless it was linked with -z now. */
PTW_HIDDEN bool ptw_segments_linkage(uint32_t page);

/* In a fork child whose region was replaced: map everything from there. */
PTW_HIDDEN int ptw_segments_remap(void);

/* Share what is loaded. 0 or negative errno. */
PTW_HIDDEN int ptw_segments_init(void);

#endif
