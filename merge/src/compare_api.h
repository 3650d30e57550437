/* SPDX-License-Identifier: MIT */
/*
 * What Python sees of the comparison of two flows: two threads' flows walked side by side, each with its call stack,
 * from where they go apart to where they agree again.
 *
 * Not thread-safe. The caller's programs, trees and places outlive the comparison; flows are copied as they are fed,
 * and dropped when both sides are past them. Whoever creates destroys. Errors are negative errno values; every number
 * that comes from a table is checked.
 *
 * The text between the guards is also the cffi definition: plain declarations only.
 */
#ifndef PTWEAVE_MERGE_COMPARE_API_H
#define PTWEAVE_MERGE_COMPARE_API_H

#include "merge_api.h"

/* cdef: begin */

enum ptm_room {
	PTM_PROGRAM = 0, /* code of the program */
	PTM_LIBTTHREAD = 1,
	PTM_SYSTEM = 2   /* the C library and the loader: libtthread's own work when libtthread called them */
};

/* What of a block is the same in both runs: numbers of the places where it begins and where its last instruction is. */
struct ptm_places {
	uint32_t first;
	uint32_t last;
	uint32_t room;   /* enum ptm_room */
};

enum ptm_apart {
	PTM_APART_FLOW = 1, /* from the same place execution went two ways */
	PTM_APART_GAP = 2,  /* one side's record has a hole */
	PTM_APART_END = 3   /* one side ended */
};

enum { PTM_CALLEES = 8 };

/* One side of a difference: where it went, and what it executed until both agreed again. */
struct ptm_way {
	int64_t seq;           /* block it went to; -1 none */
	int64_t from_seq;      /* block they last agreed in; -1 none */
	int64_t sync_seq;      /* block they agree from again; -1 none */
	int64_t blocks;        /* in all occurrences */
	int64_t instructions;
	int32_t block;         /* -1 none */
	int32_t from_block;
	uint32_t stack;        /* node of the stack at from_seq; UINT32_MAX none */
	uint32_t n_callees;    /* functions it called from there, the first time, in order of their first calls */
	uint32_t callees[8];
	int64_t calls[8];
};

/* A place where the flows went apart, as often as they did. Ways are the first time's, but for their sums. */
struct ptm_difference {
	int32_t kind;          /* enum ptm_apart */
	int32_t zero;
	int64_t times;
	struct ptm_way ways[2];
};

struct ptm_compare;

/* `freely`: blocks that may be gone through in a thread to find where flows agree again before it is looked whether less
 * will do. */
int ptm_compare_create(const struct ptm_program *a, const struct ptm_places *places_a, struct ptm_tree *tree_a,
		       const struct ptm_program *b, const struct ptm_places *places_b, struct ptm_tree *tree_b,
		       int64_t freely, struct ptm_compare **ret);
void ptm_compare_destroy(struct ptm_compare *compare);
/* Two other threads: nothing is left of the last ones. */
void ptm_compare_begin(struct ptm_compare *compare);
/* More of one side's flow, and all events up to its end; `last`: nothing follows. -EINVAL: a path that does not
 * exist; -ENOMEM. */
int ptm_compare_feed(struct ptm_compare *compare, int side, const int64_t *seqs, const int32_t *paths, size_t n,
		     const struct ptm_event *events, size_t n_events, int last);
/* Go on as far as what was fed goes. 0: done; 1, 2 or 3: more of side 0, 1 or both is needed; or an error. */
int ptm_compare_run(struct ptm_compare *compare);
/* Rows that a side has left. */
size_t ptm_compare_ahead(const struct ptm_compare *compare, int side);
/* What differed, in the order of the first times; `others` counts differences at places beyond the most kept. Blocks in
 * which both agreed. */
const struct ptm_difference *ptm_compare_found(const struct ptm_compare *compare, size_t *ret, int64_t *others,
					       int64_t *agreed);

/* For each element of `a` the one of `b` it corresponds to, -1 none: in order, leaving out as few as possible. */
int ptm_correspond(const uint64_t *a, size_t n_a, const uint64_t *b, size_t n_b, int64_t *ret);

/* cdef: end */

#endif
