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
	*tape = (struct tape){ .on = true, .seq = seq, .low = frames, .called = PTM_NONE, .steps = steps };
	return 0;
}

void tape_deinit(struct tape *tape)
{
	free(tape->steps);
	*tape = (struct tape){ .on = false };
}

void tape_settle(struct tape *tape, int64_t x, uint32_t node, int64_t instructions)
{
	const int64_t offset = x - tape->seq;
	const bool called = tape->called != PTM_NONE;

	if (tape->n == TAPE_STEPS || offset > UINT16_MAX || instructions > UINT16_MAX || (called && tape->called != node)) {
		tape->failed = true;
		return;
	}
	tape->called = PTM_NONE;
	tape->steps[tape->n++] = (struct tape_step){
		.node = node | (called ? TAPE_CALLED : 0),
		.offset = (uint16_t)offset,
		.instructions = (uint16_t)instructions,
	};
}

void tape_call(struct tape *tape, uint32_t node)
{
	/* whoever enters a frame settles the one below it first, and it is settled itself before it makes a call */
	if (!tape->n || tape->called != PTM_NONE)
		tape->failed = true;
	tape->called = node;
}
