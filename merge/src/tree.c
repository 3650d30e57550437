/* SPDX-License-Identifier: MIT */
/* The tree of call stacks: nodes in one growing array, found through a hash of (parent, function, block). */
#include "tree.h"

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
	tree->open = malloc(tree->room * sizeof(*tree->open));
	if (!tree->nodes || !tree->slots || !tree->touched || !tree->open) {
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
	free(tree->open);
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
	tree->first_window = ++tree->window;
	tree->n_touched = tree->n_open = 0;
}

static size_t hash(uint32_t parent, uint32_t function, uint32_t block)
{
	uint64_t h = ((uint64_t)parent << 32 | function) * 0x9e3779b97f4a7c15u;

	h ^= h >> 32;
	h = (h + block) * 0xd6e8feb86659fd93u;
	return (size_t)(h ^ h >> 32);
}

/* The slot that holds the key, or the free one where it would go. */
static uint32_t *find(const struct ptm_tree *tree, uint32_t parent, uint32_t function, uint32_t block)
{
	const size_t mask = tree->n_slots - 1;

	for (size_t i = hash(parent, function, block) & mask;; i = (i + 1) & mask) {
		uint32_t *slot = &tree->slots[i];

		if (!*slot)
			return slot;
		const struct ptm_node *node = &tree->nodes[*slot - 1];

		if (node->parent == parent && node->function == function && node->block == block)
			return slot;
	}
}

static int grow_numbers(uint32_t **numbers, size_t room)
{
	uint32_t *grown = realloc(*numbers, room * sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	*numbers = grown;
	return 0;
}

/* Double the arrays and the hash, so that the hash stays at most half full. */
static int grow(struct ptm_tree *tree)
{
	const size_t room = 2 * tree->room;
	struct ptm_node *nodes;
	uint32_t *slots;

	if (room > INT32_MAX / 2 || grow_numbers(&tree->touched, room) || grow_numbers(&tree->open, room))
		return -ENOMEM;
	nodes = realloc(tree->nodes, room * sizeof(*nodes));
	if (!nodes)
		return -ENOMEM;
	tree->nodes = nodes;
	slots = calloc(2 * room, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	free(tree->slots);
	tree->slots = slots;
	tree->n_slots = 2 * room;
	tree->room = room;
	for (size_t i = 0; i < tree->n; i++)
		*find(tree, nodes[i].parent, nodes[i].function, nodes[i].block) = (uint32_t)i + 1;
	return 0;
}

static int add(struct ptm_tree *tree, uint32_t parent, uint32_t function, uint32_t block, uint32_t *ret)
{
	if (tree->n == tree->room) {
		const int error = grow(tree);

		if (error)
			return error;
	}
	*find(tree, parent, function, block) = (uint32_t)tree->n + 1;
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
	const uint32_t slot = *find(tree, parent, function, block);

	if (!slot)
		return add(tree, parent, function, block, ret);
	*ret = slot - 1;
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
	const uint32_t slot = *find(tree, parent, function, block);

	if (slot) {
		*ret = slot - 1;
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

	if (node->window < tree->first_window) {
		tree->touched[tree->n_touched++] = number;
		node->calls = node->instructions = node->blocks = node->time = 0;
	}
	node->window = tree->window;
	node->ran = 0;
	tree->open[tree->n_open++] = number;
}

void tree_hand_out(struct ptm_tree *tree, const struct timeline *line)
{
	int64_t x = line->seq0, t = timeline_between(line, x);

	for (size_t i = 0; i < tree->n_open; i++) {
		struct ptm_node *node = &tree->nodes[tree->open[i]];

		if (!node->ran)
			continue;
		const int64_t end = timeline_between(line, x += node->ran);

		node->time += end - t;
		t = end;
	}
	tree->n_open = 0;
	tree->window++;
}
