/* SPDX-License-Identifier: MIT */
/*
 * The tree of call stacks of a run, shared by all its threads; counters are those of one thread at a time.
 *
 * A node's time is a sum of what its blocks took in every stretch between two known moments: a stretch's rate (time a
 * block) times the blocks of it that ran with the node's stack. Sums are of integers: they are the same in whatever order
 * they are added up. Whoever shows them makes whole nanoseconds of them.
 *
 * Bounded. A stack deeper than `max_depth` keeps its outermost max_depth - 1 frames and its innermost one. When
 * there are `max_nodes` nodes, only shallow stacks are still kept, an eighth more; others fold into their outermost frames
 * -> [folded] -> function, and when there are too many of those, too, into [folded] -> function. So what ran in a
 * function is always counted for that function; only who called it may be lost, and the walk counts those calls.
 */
#ifndef PTWEAVE_MERGE_TREE_H
#define PTWEAVE_MERGE_TREE_H

#include <stdbool.h>
#include <string.h>

#include "merge_api.h"
#include "timeline.h"

enum tree_fold {
	TREE_WHOLE,
	TREE_DEEP,
	TREE_MANY,
};

/* A child that was found lately. */
struct tree_recent {
	uint32_t parent;
	uint32_t function;
	uint32_t block;
	uint32_t node;
	uint32_t known;         /* 0: nothing; the fold + 1 */
};

enum { TREE_RECENT = 1 << 12 };

struct ptm_tree {
	struct ptm_node *nodes;
	size_t n;
	size_t room;            /* of `nodes` and `touched`: reserved, and written as far as they are used */
	size_t max_nodes;
	uint32_t max_depth;
	uint64_t *slots;        /* open addressing: half of the key's hash, and node + 1; 0 free */
	size_t n_slots;         /* in use: a power of two */
	size_t slots_room;
	uint32_t thread;        /* number of the walk whose counters are in nodes */
	uint32_t *touched;      /* nodes met by it: room for all there are */
	size_t n_touched;
	struct tree_recent recent[TREE_RECENT];
};

enum { TREE_SOON = 8 }; /* nodes: those of a stack are mostly adopted one after the other */
enum { TREE_LINE = 64 / sizeof(uint64_t) }; /* slots in a line of the processor's cache */

/* The line in which a node's children are looked for first: most of the time goes into waiting for it. */
static inline uint64_t *tree_line(const struct ptm_tree *tree, uint32_t parent)
{
	const uint64_t h = (parent + 1ull) * 0x9e3779b97f4a7c15u;

	return &tree->slots[h >> 32 & (tree->n_slots - TREE_LINE)];
}

/* Forget the counters: another thread's turn. */
void tree_begin(struct ptm_tree *tree);
/* The node of `parent` (PTM_NONE: the bottom) calling `function` from `block`. Negative errno when out of memory. */
int tree_child(struct ptm_tree *tree, uint32_t parent, uint32_t function, uint32_t block, enum tree_fold *fold,
	       uint32_t *ret);
/* The same for a node of another tree: -ENOSPC when it is too deep for this one, or folded there. */
int tree_adopt(struct ptm_tree *tree, uint32_t parent, uint32_t function, uint32_t block, uint32_t *ret);
/* Whether a node stands for a function in stacks there was no room for (TREE_MANY). */
bool tree_is_folded(const struct ptm_tree *tree, uint32_t number);
/* So many nodes more are going to be adopted, at most: the hash grows once for all. */
void tree_expect(struct ptm_tree *tree, size_t more);
/* One is adopted TREE_SOON from now: what it is looked for in is fetched, if its parent is among the `known` nodes of its
 * tree that have their numbers. */
void tree_fetch(const struct ptm_tree *tree, const uint32_t *numbers, size_t known, uint32_t parent, uint32_t function,
		uint32_t block);
/* The same as tree_touch, of a node that this thread has not met. */
void tree_open(struct ptm_tree *tree, uint32_t number);

/* `time` (timeline.h) is a node's. */
static inline void tree_spend(struct ptm_node *node, timeline_ns time)
{
	timeline_ns spent;

	memcpy(&spent, node->spent, sizeof(spent));
	spent += time;
	memcpy(node->spent, &spent, sizeof(spent));
}

/* A node with its counters ready for the current thread. */
static inline struct ptm_node *tree_touch(struct ptm_tree *tree, uint32_t number)
{
	if (tree->nodes[number].thread != tree->thread)
		tree_open(tree, number);
	return &tree->nodes[number];
}

#endif
