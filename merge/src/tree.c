/* SPDX-License-Identifier: MIT */
/*
 * The tree of call stacks: nodes in one array, found through a hash of (parent, function, block).
 *
 * Most of the time goes into waiting for the hash's lines: the children of a node are looked for in the node's own line
 * first, which is fetched when the node is found, and only those for which that has no room are scattered.
 */
#define _GNU_SOURCE /* madvise, mremap */
#include "tree.h"
#include "pages.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#ifndef TREE_SHALLOW
#define TREE_SHALLOW 24 /* what a program's main part does is seldom as deep as what it loads; tests take less */
#endif

#ifndef TREE_MORE
#define TREE_MORE (1 << 18) /* folded functions, that there is room for from the begin on; tests take less */
#endif

enum {
	FIRST_SLOTS = 2048,
	KEY_WORDS = 3,
	SPARE = 8,           /* one in so many more: shallow ones */
	SPARE_FOLDED = 16,   /* of them, folded ones below shallow ones */
};

/* In a node's `below`: it is a child of that [folded] node, whose number + 1 the rest is; else what it calls may be. */
#define BELOW_FOLDED (UINT32_C(1) << 31)

_Static_assert(sizeof(struct ptm_node) == 64, "a line");

static int take(struct ptm_tree *tree)
{
	tree->nodes = pages_reserve(tree->room * sizeof(*tree->nodes));
	tree->touched = pages_reserve(tree->room * sizeof(*tree->touched));
	tree->slots = pages_reserve(tree->slots_room * sizeof(*tree->slots));
	return tree->nodes && tree->touched && tree->slots ? 0 : -ENOMEM;
}

int ptm_tree_create(size_t max_nodes, uint32_t max_depth, struct ptm_tree **ret)
{
	struct ptm_tree *tree;
	int error;

	if (max_nodes < 2 || max_nodes > INT32_MAX / 4 || max_depth < 2)
		return -EINVAL;
	tree = calloc(1, sizeof(*tree));
	if (!tree)
		return -ENOMEM;
	tree->max_nodes = max_nodes;
	tree->max_depth = max_depth;
	tree->room = max_nodes + max_nodes / SPARE + TREE_MORE;
	tree->n_slots = FIRST_SLOTS;
	for (tree->slots_room = FIRST_SLOTS; tree->slots_room < 2 * tree->room;)
		tree->slots_room *= 2;
	error = take(tree);
	if (error) {
		ptm_tree_destroy(tree);
		return error;
	}
	*ret = tree;
	return 0;
}

void ptm_tree_destroy(struct ptm_tree *tree)
{
	if (!tree)
		return;
	pages_drop(tree->nodes, tree->room * sizeof(*tree->nodes));
	pages_drop(tree->touched, tree->room * sizeof(*tree->touched));
	pages_drop(tree->slots, tree->slots_room * sizeof(*tree->slots));
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

void ptm_tree_counters(const struct ptm_tree *tree, const uint32_t *numbers, size_t n, int64_t *calls,
		       int64_t *instructions, int64_t *blocks, uint64_t *spent)
{
	for (size_t i = 0; i < n; i++) {
		const struct ptm_node *node = &tree->nodes[numbers[i]];

		calls[i] = node->calls;
		instructions[i] = node->instructions;
		blocks[i] = node->blocks;
		memcpy(spent + 2 * i, node->spent, sizeof(node->spent));
	}
}

void ptm_times(const uint64_t *spent, size_t n, uint64_t *sum, int64_t *times)
{
	const timeline_ns half = TIMELINE_NS / 2; /* halves are rounded up */
	timeline_ns all;

	memcpy(&all, sum, sizeof(all));
	int64_t before = (int64_t)((all + half) / TIMELINE_NS);
	for (size_t i = 0; i < n; i++) {
		timeline_ns one;

		memcpy(&one, spent + 2 * i, sizeof(one));
		all += one;
		const int64_t now = (int64_t)((all + half) / TIMELINE_NS);

		times[i] = now - before;
		before = now;
	}
	memcpy(sum, &all, sizeof(all));
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

/* Free, or the key's. */
static bool ends_search(const struct ptm_tree *tree, uint64_t slot, uint64_t h, uint32_t parent, uint32_t function,
			uint32_t block)
{
	if (!slot)
		return true;
	if ((slot ^ h) >> 32)
		return false;
	const struct ptm_node *node = &tree->nodes[number_in(slot)];

	return node->parent == parent && node->function == function && node->block == block;
}

/* The slot that holds the key, whose hash is `h`, or the free one where it would go. */
static uint64_t *find(const struct ptm_tree *tree, uint64_t h, uint32_t parent, uint32_t function, uint32_t block)
{
	const size_t mask = tree->n_slots - 1;
	uint64_t *line = tree_line(tree, parent);

	for (size_t i = 0; i < TREE_LINE; i++) {
		uint64_t *slot = &line[(h + i) % TREE_LINE];

		if (ends_search(tree, *slot, h, parent, function, block))
			return slot;
	}
	for (size_t i = h & mask;; i = (i + 1) & mask)
		if (ends_search(tree, tree->slots[i], h, parent, function, block))
			return &tree->slots[i];
}

/* Enlarge the hash in its place: what it holds is in the nodes, too. */
static void rehash(struct ptm_tree *tree, size_t n_slots)
{
	tree->n_slots = n_slots;
	memset(tree->slots, 0, tree->n_slots * sizeof(*tree->slots)); /* new pages, too: who first reads one waits twice */
	for (uint32_t i = 0; i < tree->n; i++) {
		const struct ptm_node *node = &tree->nodes[i];
		const uint64_t h = hash(node->parent, node->function, node->block);

		*find(tree, h, node->parent, node->function, node->block) = slot_of(h, i);
	}
}

static int more(void **pages, size_t *room, size_t size)
{
	void *memory = pages_more(*pages, *room * size, 2 * *room * size);

	if (!memory)
		return -ENOMEM;
	*pages = memory;
	*room *= 2;
	return 0;
}

/* Nodes that a hash of so many slots is for: it is at most three quarters full. */
static size_t room_in(size_t n_slots)
{
	return n_slots / 4 * 3;
}

void tree_expect(struct ptm_tree *tree, size_t more)
{
	size_t n_slots = tree->n_slots;

	while (n_slots < tree->slots_room && tree->n + more > room_in(n_slots))
		n_slots *= 2;
	if (n_slots > tree->n_slots)
		rehash(tree, n_slots);
}

void tree_fetch(const struct ptm_tree *tree, const uint32_t *numbers, size_t known, uint32_t parent, uint32_t function,
		uint32_t block)
{
	if (parent >= known)
		return;
	parent = numbers[parent];
	__builtin_prefetch(&tree->nodes[parent]);
	__builtin_prefetch(tree_line(tree, parent), 1);
	__builtin_prefetch(&tree->slots[hash(parent, function, block) & (tree->n_slots - 1)], 1);
}

/* Room for one node more, and a hash that is at most three quarters full. Who has more folded functions than were reckoned
 * with gets more pages. */
static int reserve(struct ptm_tree *tree)
{
	size_t touched_room = tree->room;
	int error = 0;

	if (tree->n == tree->room) {
		if (tree->room > INT32_MAX / 2)
			return -ENOMEM;
		error = more((void **)&tree->touched, &touched_room, sizeof(*tree->touched));
		if (!error)
			error = more((void **)&tree->nodes, &tree->room, sizeof(*tree->nodes));
	}
	if (!error && tree->n >= room_in(tree->n_slots)) {
		if (tree->n_slots == tree->slots_room)
			error = more((void **)&tree->slots, &tree->slots_room, sizeof(*tree->slots));
		if (!error)
			rehash(tree, 2 * tree->n_slots);
	}
	return error;
}

static int add(struct ptm_tree *tree, uint32_t parent, uint32_t function, uint32_t block, uint32_t *ret)
{
	const uint64_t h = hash(parent, function, block);
	const int error = reserve(tree);

	if (error)
		return error;
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

/* Whether there is room for a node more that folds behind outermost frames. */
static bool has_room_for_folded(const struct ptm_tree *tree)
{
	return tree->n < tree->max_nodes + tree->max_nodes / SPARE_FOLDED;
}

/* The [folded] node for what is called from `parent`, whose own place in the tree is known. */
static int find_folded(struct ptm_tree *tree, uint32_t parent, uint32_t *ret)
{
	uint32_t outer = parent;
	int error;

	if (parent != PTM_NONE && tree->nodes[parent].below) {
		*ret = (tree->nodes[parent].below & ~BELOW_FOLDED) - 1;
		return 0;
	}
	while (outer != PTM_NONE && tree->nodes[outer].depth > TREE_SHALLOW)
		outer = tree->nodes[outer].parent;
	if (!has_room_for_folded(tree))
		outer = PTM_NONE;
	error = find_or_add(tree, outer, PTM_FOLDED, PTM_NONE, ret);
	if (!error && parent != PTM_NONE)
		tree->nodes[parent].below = *ret + 1;
	return error;
}

/*
 * [folded] -> function, below the outermost frames of the stack while there is room for that, else at the bottom, where
 * there is at most one a function.
 */
static int fold_child(struct ptm_tree *tree, uint32_t parent, uint32_t function, uint32_t *ret)
{
	uint32_t folded;
	int error = find_folded(tree, parent, &folded);

	if (error)
		return error;
	if (tree->nodes[folded].parent != PTM_NONE && !has_room_for_folded(tree) &&
	    !*find(tree, hash(folded, function, PTM_NONE), folded, function, PTM_NONE)) {
		error = find_or_add(tree, PTM_NONE, PTM_FOLDED, PTM_NONE, &folded);
		if (error)
			return error;
	}
	error = find_or_add(tree, folded, function, PTM_NONE, ret);
	if (!error)
		tree->nodes[*ret].below = (folded + 1) | BELOW_FOLDED;
	return error;
}

/* Whether there is room for a node more that is not folded. */
static bool has_room(const struct ptm_tree *tree, uint32_t parent)
{
	const uint32_t depth = parent == PTM_NONE ? 0 : tree->nodes[parent].depth;

	return tree->n < tree->max_nodes || (depth < TREE_SHALLOW && tree->n < tree->max_nodes + tree->max_nodes / SPARE);
}

static int child_of(struct ptm_tree *tree, uint32_t parent, uint32_t function, uint32_t block, enum tree_fold *fold,
		    uint32_t *ret)
{
	*fold = TREE_WHOLE;
	if (parent != PTM_NONE) {
		if (tree->nodes[parent].below & BELOW_FOLDED) {
			*fold = TREE_MANY;
			return fold_child(tree, parent, function, ret);
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
	if (!has_room(tree, parent)) {
		*fold = TREE_MANY;
		return fold_child(tree, parent, function, ret);
	}
	return add(tree, parent, function, block, ret);
}

int tree_child(struct ptm_tree *tree, uint32_t parent, uint32_t function, uint32_t block, enum tree_fold *fold,
	       uint32_t *ret)
{
	struct tree_recent *recent = &tree->recent[hash(parent, function, block) >> 32 & (TREE_RECENT - 1)];
	int error;

	if (tree->n < tree->max_nodes)
		return child_of(tree, parent, function, block, fold, ret);
	if (recent->parent == parent && recent->function == function && recent->block == block && recent->known) {
		*fold = recent->known - 1;
		*ret = recent->node;
		return 0;
	}
	error = child_of(tree, parent, function, block, fold, ret);
	if (!error)
		*recent = (struct tree_recent){ .parent = parent, .function = function, .block = block, .node = *ret,
						.known = *fold + 1 };
	return error;
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

void ptm_tree_keys(const struct ptm_tree *tree, size_t first, size_t n, uint32_t *keys)
{
	for (size_t i = first; i < n; i++, keys += KEY_WORDS) {
		const struct ptm_node *node = &tree->nodes[i];

		keys[0] = node->parent;
		keys[1] = node->function;
		keys[2] = node->block;
	}
}

bool tree_is_folded(const struct ptm_tree *tree, uint32_t number)
{
	return tree->nodes[number].below & BELOW_FOLDED;
}

int tree_adopt(struct ptm_tree *tree, uint32_t parent, uint32_t function, uint32_t block, uint32_t *ret)
{
	enum tree_fold fold;
	int error;

	if (function == PTM_FOLDED)
		return -ENOSPC;
	error = tree_child(tree, parent, function, block, &fold, ret);
	if (error)
		return error;
	if (fold == TREE_DEEP)
		return -ENOSPC;
	__builtin_prefetch(tree_line(tree, *ret)); /* its children come soon */
	return 0;
}

int ptm_tree_adopt(struct ptm_tree *tree, const uint32_t *keys, size_t first, size_t n, uint32_t *numbers)
{
	tree_expect(tree, n - first);
	for (size_t i = first; i < n; i++, keys += KEY_WORDS) {
		const uint32_t parent = keys[0];
		int error;

		if (i + TREE_SOON < n) {
			const uint32_t *soon = keys + TREE_SOON * KEY_WORDS;

			tree_fetch(tree, numbers, i, soon[0], soon[1], soon[2]);
		}
		if (parent != PTM_NONE && parent >= i)
			return -EINVAL;
		error = tree_adopt(tree, parent == PTM_NONE ? PTM_NONE : numbers[parent], keys[1], keys[2], &numbers[i]);
		if (error)
			return error;
		if (tree_is_folded(tree, numbers[i]))
			return -ENOSPC;
	}
	return 0;
}

void tree_open(struct ptm_tree *tree, uint32_t number)
{
	struct ptm_node *node = &tree->nodes[number];

	tree->touched[tree->n_touched++] = number;
	node->thread = tree->thread;
	node->calls = node->instructions = node->blocks = 0;
	node->spent[0] = node->spent[1] = 0;
}
