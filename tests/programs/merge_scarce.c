/* SPDX-License-Identifier: MIT */
/* The walk of merging, each of whose allocations fails (scarce_memory.h): a function that calls itself, deeply. */
#include "merge_api.h"
#include "scarce_memory.h"

enum { DEPTH = 3000, ROWS = 2 * DEPTH, MARKS = 4000 };

static int64_t seqs[ROWS];
static int32_t paths[ROWS];

static bool walk_to_the_end(struct ptm_walk *walk)
{
	size_t anchors, events;
	for (int64_t done = 0; done < ROWS;) {
		const int64_t some = ptm_walk_feed(walk, seqs + done, paths + done, (size_t)(ROWS - done), NULL, NULL, 0, NULL,
						   0, &anchors, &events);
		if (some < 0)
			return false;
		done += some;
		size_t n;
		ptm_walk_calls(walk, &n);
		ptm_walk_marks(walk, &n);
		ptm_walk_visits(walk, &n);
	}
	return ptm_walk_end(walk, NULL, NULL, 0) == 0;
}

static bool walk(void)
{
	static const struct ptm_block blocks[] = {
		{.addr = 8, .ip = 8, .size = 8, .last = 4, .function = PTM_FIRST_FUNCTION, .instructions = 2, .cls = PTM_CALL,
		 .flags = PTM_ENTRY | PTM_MARKER | PTM_ACCESS},
		{.addr = 16, .ip = 16, .size = 8, .last = 4, .function = PTM_FIRST_FUNCTION, .instructions = 2,
		 .cls = PTM_RETURN}};
	static const int64_t offsets[] = {0, 1, 2};
	static const int32_t values[] = {0, 1};
	struct ptm_program *program = NULL;
	struct ptm_tree *tree = NULL;
	struct ptm_walk *walk = NULL;
	bool done = ptm_program_create(blocks, 2, offsets, values, 2, 2, &program) == 0 &&
		    ptm_tree_create(1 << 20, 1 << 16, &tree) == 0 && ptm_walk_create(program, tree, 1, &walk) == 0;
	if (done) {
		ptm_walk_begin(walk);
		done = walk_to_the_end(walk);
	}
	if (walk)
		ptm_walk_destroy(walk);
	if (tree)
		ptm_tree_destroy(tree);
	if (program)
		ptm_program_destroy(program);
	return done;
}

static bool callers(void)
{
	static struct ptm_mark marks[MARKS];
	static struct ptm_numbered numbered[MARKS];
	struct ptm_callers *callers;
	for (size_t i = 0; i < MARKS; i++)
		marks[i].callers.returns[0] = i;
	if (ptm_callers_create(&callers) < 0)
		return false;
	bool done = ptm_callers_number(callers, marks, MARKS, numbered) == 0;
	ptm_callers_destroy(callers);
	return done;
}

int main(void)
{
	for (int i = 0; i < ROWS; i++) {
		seqs[i] = i;
		paths[i] = i >= DEPTH;
	}
	return exhaust("walk", walk) || exhaust("callers", callers);
}
