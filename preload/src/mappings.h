/* SPDX-License-Identifier: MIT */
/*
 * What is mapped in a process, as /proc/PID/maps tells it, line by line. Signal-safe; nothing is allocated. The file is
 * read while it changes: whoever needs it whole sees that nobody maps anything meanwhile.
 */
#ifndef PTW_MAPPINGS_H
#define PTW_MAPPINGS_H

#include "sys.h"

#include <stdbool.h>
#include <sys/mman.h>

struct ptw_mapping_line {
	uint64_t start, end, offset, inode;
	int protection;
	bool shared;
	bool is_stack; /* the one the kernel gave */
	const char *path; /* "" no file; else the file's, or a "/" of what has only a name. Until the next one is asked for */
};

/* May it hold what is written, of this process alone? */
static inline bool ptw_mappings_is_data(const struct ptw_mapping_line *line)
{
	return !line->shared && (line->protection & PROT_WRITE) && !(line->protection & PROT_EXEC) && !line->is_stack;
}

struct ptw_mappings {
	long fd;
	long got;
	long at;
	char buffer[4096 + 256]; /* a line with the longest path */
};

/* Of process `pid`, 0: this one. False when it cannot be told. */
PTW_HIDDEN bool ptw_mappings_init(struct ptw_mappings *mappings, uint32_t pid);
PTW_HIDDEN void ptw_mappings_deinit(struct ptw_mappings *mappings);

/* The next one, by address; false at the end. */
PTW_HIDDEN bool ptw_mappings_next(struct ptw_mappings *mappings, struct ptw_mapping_line *ret);

#endif
