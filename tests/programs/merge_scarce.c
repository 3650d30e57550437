/* SPDX-License-Identifier: MIT */
/* The walk of merging, each of whose allocations fails (scarce_memory.h): a function that calls itself, deeply. */
#include "callers.h"
#include "scarce_memory.h"

enum { DEPTH = 3000, ROWS = 2 * DEPTH, LISTS = 4000, STRANGERS = 100 };

static int64_t seqs[ROWS];
static int32_t paths[ROWS];

static bool walk_rows(struct ptm_walk *walk, int64_t done, int64_t end)
{
	size_t anchors, events;
	while (done < end) {
		const int64_t some = ptm_walk_feed(walk, seqs + done, paths + done, (size_t)(end - done), NULL, NULL, 0, NULL,
						   0, &anchors, &events);
		if (some < 0)
			return false;
		done += some;
		size_t n;
		ptm_walk_calls(walk, &n);
		ptm_walk_marks(walk, &n);
		ptm_walk_visits(walk, &n);
	}
	return true;
}

/* A function that calls itself, and one that is no function of anybody's: it is returned to. */
static const struct ptm_block blocks[] = {
	{.addr = 8, .ip = 8, .size = 8, .last = 4, .function = PTM_FIRST_FUNCTION, .instructions = 2, .cls = PTM_CALL,
	 .flags = PTM_ENTRY | PTM_MARKER | PTM_ACCESS},
	{.addr = 16, .ip = 16, .size = 8, .last = 4, .function = PTM_FIRST_FUNCTION, .instructions = 2, .cls = PTM_COND_JUMP},
	{.addr = 24, .ip = 24, .size = 8, .last = 4, .function = PTM_FIRST_FUNCTION, .instructions = 2, .cls = PTM_RETURN},
	{.addr = 32, .ip = 32, .size = 8, .last = 4, .function = PTM_FIRST_FUNCTION + 1, .instructions = 2, .cls = PTM_RETURN,
	 .flags = PTM_ENTRY}};
static const int64_t offsets[] = {0, 1, 3, 4, 5};
static const int32_t values[] = {0, 1, 2, 1, 3};
enum { CALL, BACK, BEHIND, STRANGE };

static bool walk(void)
{
	struct ptm_program *program = NULL;
	struct ptm_tree *tree = NULL;
	struct ptm_walk *walk = NULL;
	bool done = ptm_program_create(blocks, 4, offsets, values, 5, 4, &program) == 0 && ptm_program_digest(program) == 0 &&
		    ptm_tree_create(1 << 20, 1 << 16, &tree) == 0 && ptm_walk_create(program, tree, NULL, 1, &walk) == 0;
	if (done) {
		ptm_walk_begin(walk);
		done = walk_rows(walk, 0, ROWS) && ptm_walk_end(walk, NULL, NULL, 0) == 0;
	}
	if (walk)
		ptm_walk_destroy(walk);
	if (tree)
		ptm_tree_destroy(tree);
	if (program)
		ptm_program_destroy(program);
	return done;
}

/* The way back is walked apart: each return says something of the stack, and now and then nobody is returned to. */
static bool walk_apart(struct ptm_walk *walk, struct ptm_walk *part)
{
	ptm_walk_begin(walk);
	if (!walk_rows(walk, 0, DEPTH))
		return false;
	ptm_walk_pause(walk, NULL, NULL, 0);
	if (ptm_walk_begin_within(part, ptm_walk_next(walk), paths[DEPTH - 1]) < 0)
		return false;
	ptm_walk_skip(part, NULL, NULL, 0);
	return walk_rows(part, DEPTH, ROWS) && ptm_walk_end(part, NULL, NULL, 0) == 0 && ptm_walk_fits(walk, part) &&
	       ptm_walk_join(walk, part) == 0;
}

static bool parts(void)
{
	struct ptm_program *program = NULL;
	struct ptm_tree *trees[2] = {NULL, NULL};
	struct ptm_walk *walks[2] = {NULL, NULL};
	bool done = ptm_program_create(blocks, 4, offsets, values, 5, 4, &program) == 0 && ptm_program_digest(program) == 0;
	for (int i = 0; done && i < 2; i++)
		done = ptm_tree_create(1 << 20, 1 << 16, &trees[i]) == 0 &&
		       ptm_walk_create(program, trees[i], NULL, 0, &walks[i]) == 0;
	done = done && walk_apart(walks[0], walks[1]);
	for (int i = 0; i < 2; i++) {
		if (walks[i])
			ptm_walk_destroy(walks[i]);
		if (trees[i])
			ptm_tree_destroy(trees[i]);
	}
	if (program)
		ptm_program_destroy(program);
	return done;
}

static bool callers(void)
{
	struct ptm_callers *callers;
	uint32_t number;
	bool done = true;
	if (ptm_callers_create(&callers) < 0)
		return false;
	for (size_t i = 0; done && i < LISTS; i++)
		done = callers_number(callers, &(struct ptm_returns){.returns = {i}}, &number) == 0;
	ptm_callers_destroy(callers);
	return done;
}

int main(void)
{
	for (int i = 0; i < ROWS; i++)
		paths[i] = i < DEPTH ? CALL : BACK;
	paths[ROWS - STRANGERS - 30] = BEHIND; /* a call, and returns to nobody */
	paths[ROWS - STRANGERS - 29] = CALL;
	for (int i = 0; i < STRANGERS; i++)
		paths[ROWS - STRANGERS - 28 + i] = STRANGE;
	for (int i = 1; i < ROWS; i++)
		seqs[i] = seqs[i - 1] + offsets[paths[i - 1] + 1] - offsets[paths[i - 1]];
	return exhaust("walk", walk) || exhaust("parts", parts) || exhaust("callers", callers);
}
