/* SPDX-License-Identifier: MIT */
/*
 * Process mode: mappings of files and of memory shared with other programs. They lie at PTW_FILES, at addresses never
 * used twice; a process that made one is not the only one to see it: others map it when they first touch it, from the
 * table here. Private writable ones are copied to the heap instead: nothing is written to the file.
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
	int32_t fd; /* ours */
	int32_t protection;
	int32_t flags;
	uint32_t zero;
};

/* The protection the program asked for. */
PTW_HIDDEN int ptw_files_protection(uint32_t page);

/* May the page be accessed so? Maps it into this process if need be. Signal-safe. */
PTW_HIDDEN bool ptw_files_admit(uint32_t page, bool write);

/* Two pages of one mapping. */
PTW_HIDDEN bool ptw_files_same(uint32_t page, uint32_t next);

/* In a new process: close what was inherited. */
PTW_HIDDEN void ptw_files_close(void);

/* Map; the address, or negative errno. */
PTW_HIDDEN long ptw_files_map(uint64_t size, int protection, int flags, int fd, uint64_t offset);

/* Unmap whole mappings within the range. */
PTW_HIDDEN void ptw_files_unmap(uint64_t start, uint64_t size);

#endif
