/* SPDX-License-Identifier: MIT */
/* The tree of call stacks: nodes in one growing array, found through a hash of (parent, function, block). */
#define _GNU_SOURCE /* madvise */
#include "tree.h"
#include "pages.h"

#include <errno.h>
#include <stdlib.h>

enum { FIRST_NODES = 1024 };

int ptm_tree_create(size_t max_nodes, uint32_t max_depth, struct ptm_tree **ret)
{
	struct ptm_tree *tree;

	if (max_nodes < 2 || max_nodes > INT32_MAX / 4 || max_depth < 2)
		return -EINVAL;
	tree = calloc(1, sizeof(*tree));
	if (!tree)
		return -ENOMEM;
	tree->max_nodes = max_nodes;
	tree->max_depth = max_depth;
	tree->folded = PTM_NONE;
	tree->room = FIRST_NODES;
	tree->n_slots = 2 * FIRST_NODES;
	tree->nodes = calloc(tree->room, sizeof(*tree->nodes));
	tree->slots = calloc(tree->n_slots, sizeof(*tree->slots));
	tree->touched = malloc(tree->room * sizeof(*tree->touched));
	if (!tree->nodes || !tree->slots || !tree->touched) {
		ptm_tree_destroy(tree);
		return -ENOMEM;
	}
	*ret = tree;
	return 0;
}

void ptm_tree_destroy(struct ptm_tree *tree)
{
	if (!tree)
		return;
	free(tree->nodes);
	free(tree->slots);
	free(tree->touched);
	free(tree);
}

size_t ptm_tree_size(const struct ptm_tree *tree)
{
	return tree->n;
}

const struct ptm_node *ptm_tree_nodes(const struct ptm_tree *tree)
{
	return tree->nodes;
}

const uint32_t *ptm_tree_touched(const struct ptm_tree *tree, size_t *ret)
{
	*ret = tree->n_touched;
	return tree->touched;
}

void tree_begin(struct ptm_tree *tree)
{
	tree->thread++;
	tree->n_touched = 0;
}

static uint64_t hash(uint32_t parent, uint32_t function, uint32_t block)
{
	uint64_t h = ((uint64_t)parent << 32 | function) * 0x9e3779b97f4a7c15u;

	h ^= h >> 32;
	h = (h + block) * 0xd6e8feb86659fd93u;
	return h ^ h >> 32;
}

/* What a slot holds of a node's key and number: other keys are told apart without looking at their nodes. */
static uint64_t slot_of(uint64_t h, uint32_t number)
{
	return (h & ~(uint64_t)UINT32_MAX) | (number + 1);
}

static uint32_t number_in(uint64_t slot)
{
	return (uint32_t)slot - 1;
}

/* The slot that holds the key, whose hash is `h`, or the free one where it would go. */
static uint64_t *find(const struct ptm_tree *tree, uint64_t h, uint32_t parent, uint32_t function, uint32_t block)
{
	const size_t mask = tree->n_slots - 1;

	for (size_t i = h & mask;; i = (i + 1) & mask) {
		uint64_t *slot = &tree->slots[i];

		if (!*slot)
			return slot;
		if ((*slot ^ h) >> 32)
			continue;
		const struct ptm_node *node = &tree->nodes[number_in(*slot)];

		if (node->parent == parent && node->function == function && node->block == block)
			return slot;
	}
}

/* Double the arrays and the hash, so that the hash stays at most half full. */
static int grow(struct ptm_tree *tree)
{
	const size_t room = 2 * tree->room;
	struct ptm_node *nodes;
	uint32_t *touched;
	uint64_t *slots;

	if (room > INT32_MAX / 2)
		return -ENOMEM;
	touched = realloc(tree->touched, room * sizeof(*touched));
	if (!touched)
		return -ENOMEM;
	tree->touched = touched;
	nodes = realloc(tree->nodes, room * sizeof(*nodes));
	if (!nodes)
		return -ENOMEM;
	pages_hint(nodes, room * sizeof(*nodes));
	tree->nodes = nodes;
	slots = calloc(2 * room, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	pages_hint(slots, 2 * room * sizeof(*slots));
	free(tree->slots);
	tree->slots = slots;
	tree->n_slots = 2 * room;
	tree->room = room;
	for (uint32_t i = 0; i < tree->n; i++) {
		const uint64_t h = hash(nodes[i].parent, nodes[i].function, nodes[i].block);

		*find(tree, h, nodes[i].parent, nodes[i].function, nodes[i].block) = slot_of(h, i);
	}
	return 0;
}

static int add(struct ptm_tree *tree, uint32_t parent, uint32_t function, uint32_t block, uint32_t *ret)
{
	const uint64_t h = hash(parent, function, block);

	if (tree->n == tree->room) {
		const int error = grow(tree);

		if (error)
			return error;
	}
	*find(tree, h, parent, function, block) = slot_of(h, (uint32_t)tree->n);
	tree->nodes[tree->n] = (struct ptm_node){
		.parent = parent,
		.function = function,
		.block = block,
		.depth = parent == PTM_NONE ? 1 : tree->nodes[parent].depth + 1,
	};
	*ret = (uint32_t)tree->n++;
	return 0;
}

static int find_or_add(struct ptm_tree *tree, uint32_t parent, uint32_t function, uint32_t block, uint32_t *ret)
{
	const uint64_t slot = *find(tree, hash(parent, function, block), parent, function, block);

	if (!slot)
		return add(tree, parent, function, block, ret);
	*ret = number_in(slot);
	return 0;
}

/* [folded] -> function: at most one a function, beyond max_nodes. */
static int fold_child(struct ptm_tree *tree, uint32_t function, uint32_t *ret)
{
	if (tree->folded == PTM_NONE) {
		const int error = add(tree, PTM_NONE, PTM_FOLDED, PTM_NONE, &tree->folded);

		if (error)
			return error;
	}
	return find_or_add(tree, tree->folded, function, PTM_NONE, ret);
}

int tree_child(struct ptm_tree *tree, uint32_t parent, uint32_t function, uint32_t block, enum tree_fold *fold,
	       uint32_t *ret)
{
	*fold = TREE_WHOLE;
	if (parent != PTM_NONE) {
		if (tree->folded != PTM_NONE && tree->nodes[parent].parent == tree->folded) {
			*fold = TREE_MANY;
			return fold_child(tree, function, ret);
		}
		if (tree->nodes[parent].depth >= tree->max_depth) {
			*fold = TREE_DEEP;
			parent = tree->nodes[parent].parent;
		}
	}
	const uint64_t slot = *find(tree, hash(parent, function, block), parent, function, block);

	if (slot) {
		*ret = number_in(slot);
		return 0;
	}
	if (tree->n >= tree->max_nodes) {
		*fold = TREE_MANY;
		return fold_child(tree, function, ret);
	}
	return add(tree, parent, function, block, ret);
}

int ptm_tree_stacks(struct ptm_tree *tree, const uint32_t *functions, const uint32_t *blocks, const int64_t *offsets,
		    size_t n, uint32_t *ret)
{
	for (size_t i = 0; i < n; i++) {
		ret[i] = PTM_NONE;
		for (int64_t frame = offsets[i + 1]; frame > offsets[i]; frame--) {
			enum tree_fold fold;
			const int error =
				tree_child(tree, ret[i], functions[frame - 1], blocks[frame - 1], &fold, &ret[i]);

			if (error)
				return error;
		}
	}
	return 0;
}

void tree_open(struct ptm_tree *tree, uint32_t number)
{
	struct ptm_node *node = &tree->nodes[number];

	tree->touched[tree->n_touched++] = number;
	node->thread = tree->thread;
	node->calls = node->instructions = node->blocks = 0;
	node->spent = 0;
}
