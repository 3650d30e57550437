/* SPDX-License-Identifier: MIT */
/* Writing a tape; see tape.h. The steps' memory is taken once. */
#include "tape.h"

#include <errno.h>
#include <stdlib.h>

#include "merge_api.h"
#include "tree.h"

int tape_begin(struct tape *tape, int64_t seq, size_t frames)
{
	struct tape_step *steps = tape->steps;

	if (!steps)
		steps = malloc(TAPE_STEPS * sizeof(*steps));
	if (!steps)
		return -ENOMEM;
	*tape = (struct tape){ .on = true, .seq = seq, .low = frames, .steps = steps };
	return 0;
}

void tape_deinit(struct tape *tape)
{
	free(tape->steps);
	*tape = (struct tape){ .on = false };
}

static struct tape_step *next(struct tape *tape)
{
	if (tape->n == TAPE_STEPS) {
		tape->failed = true;
		return NULL;
	}
	return &tape->steps[tape->n++];
}

void tape_settle(struct tape *tape, int64_t x, uint32_t node, int64_t instructions, int64_t blocks)
{
	struct tape_step *step = next(tape);

	if (!step)
		return;
	*step = (struct tape_step){
		.offset = (uint32_t)(x - tape->seq),
		.node = node,
		.called = PTM_NONE,
		.instructions = (uint32_t)instructions,
		.blocks = (uint32_t)blocks,
	};
}

void tape_call(struct tape *tape, uint32_t node)
{
	/* whoever enters a frame settles the one below it first */
	if (!tape->n || tape->steps[tape->n - 1].called != PTM_NONE)
		tape->failed = true;
	else
		tape->steps[tape->n - 1].called = node;
}
