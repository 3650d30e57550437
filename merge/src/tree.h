/* SPDX-License-Identifier: MIT */
/*
 * The tree of call stacks of a run, shared by all its threads; counters are those of one thread at a time.
 *
 * A window is what runs between two known moments. A window's time is handed out at its end, to every node what its
 * blocks in the window would have taken had they run one after the other, nodes in the order in which they were met in
 * it. So a node's time is right to the nanosecond in every window, their sum is the window's, and while the window lasts
 * only blocks are counted.
 *
 * Bounded. A stack deeper than `max_depth` keeps its outermost max_depth - 1 frames and its innermost one. When
 * there are `max_nodes` nodes, new stacks fold into [folded] -> function. So what ran in a function is always
 * counted for that function; only who called it may be lost, and the walk counts those calls.
 */
#ifndef PTWEAVE_MERGE_TREE_H
#define PTWEAVE_MERGE_TREE_H

#include "merge_api.h"
#include "timeline.h"

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
	uint64_t window;        /* this one's number; they are numbered on from thread to thread */
	uint64_t first_window;  /* this thread's first one */
	uint32_t *touched;      /* nodes met by this thread, and in this window: room for all there are */
	size_t n_touched;
	uint32_t *open;
	size_t n_open;
};

/* Forget the counters: another thread's turn. */
void tree_begin(struct ptm_tree *tree);
/* The node of `parent` (PTM_NONE: the bottom) calling `function` from `block`. Negative errno when out of memory. */
int tree_child(struct ptm_tree *tree, uint32_t parent, uint32_t function, uint32_t block, enum tree_fold *fold,
	       uint32_t *ret);
/* The window ends, or its thread does: blocks become time. */
void tree_hand_out(struct ptm_tree *tree, const struct timeline *line);
/* The same as tree_touch, of a node that was not met in this window. */
void tree_open(struct ptm_tree *tree, uint32_t number);

/* A node with its counters ready for the current thread. */
static inline struct ptm_node *tree_touch(struct ptm_tree *tree, uint32_t number)
{
	if (tree->nodes[number].window != tree->window)
		tree_open(tree, number);
	return &tree->nodes[number];
}

#endif
