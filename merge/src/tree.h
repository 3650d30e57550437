/* SPDX-License-Identifier: MIT */
/*
 * The tree of call stacks of a run, shared by all its threads; counters are those of one thread at a time.
 *
 * Bounded. A stack deeper than `max_depth` keeps its outermost max_depth - 1 frames and its innermost one. When
 * there are `max_nodes` nodes, new stacks fold into [folded] -> function. So what ran in a function is always
 * counted for that function; only who called it may be lost, and the walk counts those calls.
 */
#ifndef PTWEAVE_MERGE_TREE_H
#define PTWEAVE_MERGE_TREE_H

#include "merge_api.h"

enum tree_fold {
	TREE_WHOLE,
	TREE_DEEP,
	TREE_MANY,
};

struct ptm_tree {
	struct ptm_node *nodes;
	size_t n;
	size_t room;
	size_t max_nodes;
	uint32_t max_depth;
	uint32_t folded;        /* the [folded] node; PTM_NONE until needed */
	uint32_t *slots;        /* open addressing: node + 1, 0 free */
	size_t n_slots;         /* a power of two */
	uint32_t *touched;
	size_t n_touched;
	size_t touched_room;
	uint64_t epoch;
};

/* Forget the counters: another thread's turn. */
void tree_begin(struct ptm_tree *tree);
/* The node of `parent` (PTM_NONE: the bottom) calling `function` from `block`. Negative errno when out of memory. */
int tree_child(struct ptm_tree *tree, uint32_t parent, uint32_t function, uint32_t block, enum tree_fold *fold,
	       uint32_t *ret);
/* The same node, which this thread had not touched. */
struct ptm_node *tree_touch_first(struct ptm_tree *tree, uint32_t node);

/* A node with its counters ready for the current thread; NULL when out of memory. */
static inline struct ptm_node *tree_touch(struct ptm_tree *tree, uint32_t number)
{
	struct ptm_node *node = &tree->nodes[number];

	return node->epoch == tree->epoch ? node : tree_touch_first(tree, number);
}

#endif
