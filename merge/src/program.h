/* SPDX-License-Identifier: MIT */
/* The blocks and paths of a run as the walk reads them. Read-only once it is digested. */
#ifndef PTWEAVE_MERGE_PROGRAM_H
#define PTWEAVE_MERGE_PROGRAM_H

#include <stdbool.h>

#include "merge_api.h"

/* A path, digested: what the walk must know to take it without looking at its blocks. A cache line. */
struct path {
	_Alignas(64) int64_t first; /* index of its first block number in `values` */
	uint32_t length;
	uint32_t instructions;
	bool plain;             /* has blocks, and stays in one frame: no call, return, marker or change of function */
	bool resumed;           /* PTM_RESUMED of its first block */
	uint32_t function;      /* of its first block, as addr and ip are */
	uint32_t last;          /* its last block */
	uint64_t addr;
	uint64_t ip;
};

/* What follows a block of a path in the same frame, with nothing to note about it: as far as it can be counted here. */
struct place {
	uint16_t plain;         /* blocks */
	uint16_t instructions;  /* of these */
};

/* The little that going over a flow asks of a path: it lies close together. */
struct brief {
	uint32_t length;        /* in blocks */
	uint32_t syscalls;      /* blocks that are system calls */
};

struct ptm_program {
	const struct ptm_block *blocks;
	size_t n_blocks;
	const int64_t *offsets; /* of each path's first one in `values`, and behind the last path's last */
	const int32_t *values;
	size_t n_values;
	size_t n_paths;
	struct brief *briefs;   /* one a path */
	struct path *paths;     /* NULL: not digested yet */
	struct place *places;   /* one a value */
};

/* True when `to` is the instruction after `from`'s last. */
bool program_falls_through(const struct ptm_block *from, const struct ptm_block *to);

/* True when nothing but a step inside one frame can have happened between a block and a path executed after it. */
static inline bool program_plain_begin(const struct ptm_block *from, const struct path *to)
{
	if (from->function != to->function)
		return false;
	switch (from->cls) {
	case PTM_OTHER:
	case PTM_COND_JUMP:
	case PTM_JUMP:
		return true;
	case PTM_IND_JUMP:
		return !to->resumed;
	case PTM_RETURN:
		return false;
	default:
		return from->addr + from->size == to->addr || from->ip + from->size == to->ip;
	}
}

/* What the step from a block to the one after it depends on, beside that one and the stack: of a call and of a system
 * call the block itself, of others their kind. */
static inline uint32_t program_manner(const struct ptm_program *program, const struct ptm_block *from)
{
	switch (from->cls) {
	case PTM_CALL:
	case PTM_IND_CALL:
	case PTM_SYSCALL:
		return (uint32_t)(from - program->blocks);
	case PTM_RETURN:
		return PTM_NONE - 2;
	case PTM_IND_JUMP:
		return PTM_NONE - 1;
	default:
		return PTM_NONE;
	}
}

/* program_plain_begin between two blocks. */
bool program_plain_step(const struct ptm_block *from, const struct ptm_block *to);

#endif
