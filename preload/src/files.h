/* SPDX-License-Identifier: MIT */
/*
 * Process mode: mappings of files and of memory shared with other programs. They lie at PTW_FILES; a process that made
 * one is not the only one to see it: others map it when they first touch it, from the table here. An address is used
 * again only when all others were used. Private writable ones are copied to the heap instead: nothing is written to the
 * file; one that becomes writable later gets a memfd that has a copy. What the program wants shared at an address within
 * its heap (a ring that lies twice behind itself) lies there, over the heap, and is not tracked.
 *
 * Each mapping has a serial number; a process knows by it whether what it has at a place is still what belongs there.
 */
#ifndef PTW_FILES_H
#define PTW_FILES_H

#include "layout.h"
#include "sys.h"

#include <stdbool.h>

enum { PTW_MAPPINGS = 8192 };

struct ptw_mapping {
	uint64_t start;
	uint64_t size; /* 0: free, or gone */
	uint64_t offset;
	uint64_t serial;
	int32_t fd; /* ours */
	int32_t protection; /* as it was mapped */
	int32_t flags;
	uint32_t copied; /* private once: `fd` is a memfd with the program's copy */
};

/* The protection the program asked for. */
PTW_HIDDEN int ptw_files_protection(uint32_t page);

/* May the page be accessed so? Maps it into this process if need be. Signal-safe. */
PTW_HIDDEN bool ptw_files_admit(uint32_t page, bool write);

/* The always open view of an address in shared writable memory; the address itself when it is none. Signal-safe. */
PTW_HIDDEN void *ptw_files_alias(uint64_t address);

/* Two pages of one mapping. */
PTW_HIDDEN bool ptw_files_same(uint32_t page, uint32_t next);

/* In a new process: close what was inherited. */
PTW_HIDDEN void ptw_files_close(void);

/* Map; the address, or negative errno. */
PTW_HIDDEN long ptw_files_map(uint64_t size, int protection, int flags, int fd, uint64_t offset);

/* The same over a part of the heap, which others are kept off by PTW_OVERLAID. */
PTW_HIDDEN long ptw_files_overlay(uint64_t start, uint64_t size, int protection, int flags, int fd, uint64_t offset);

/* Was there ever one? */
PTW_HIDDEN bool ptw_files_overlays(void);

/* May a page of it be accessed so? Maps it into this process if need be. Signal-safe. */
PTW_HIDDEN bool ptw_files_overlay_admit(uint64_t address, bool write);

/* It is no longer there. What this process has mapped stays. */
PTW_HIDDEN void ptw_files_overlay_cut(uint64_t start, uint64_t size);

/* Unmap what lies in the range, for all threads. */
PTW_HIDDEN void ptw_files_unmap(uint64_t start, uint64_t size);

/* What lies in the range is mapped in this process, too. */
PTW_HIDDEN void ptw_files_bring(uint64_t start, uint64_t size);

/* Mappings in the range (if any) are to be written to: may they be? 0 or negative errno. */
PTW_HIDDEN long ptw_files_writable(uint64_t start, uint64_t size);

/* In a fork child: copies of its own of what was copied. 0 or negative errno. */
PTW_HIDDEN long ptw_files_unshare(void);

#endif
