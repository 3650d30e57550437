// SPDX-License-Identifier: MIT
/* Runs decode/src/join.c on random bytes and on near misses: no value may lead it out of its arrays. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "join.h"

enum { CALLS = 64, ROWS = 96 };

static uint64_t state = 88172645463325252u;

static uint64_t next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static void scramble(void *memory, size_t size)
{
	unsigned char *bytes = memory;

	for (size_t i = 0; i < size; i++)
		bytes[i] = (unsigned char)(next_random() >> 32);
}

/* Half of the rounds with small numbers, so that calls and rows meet. */
static void tame(struct ptw_call *calls, struct ptw_row *rows)
{
	for (int i = 0; i < CALLS; i++) {
		calls[i].tsc_enter = (uint64_t)i * 1000 + next_random() % 900;
		calls[i].tsc_exit = next_random() % 8 ? calls[i].tsc_enter + next_random() % 300 : 0;
		calls[i].number = (uint32_t)(next_random() % 3);
		calls[i].flags = (uint32_t)(next_random() % 4);
		memset(calls[i].args, 0, sizeof(calls[i].args));
	}
	for (int i = 0; i < ROWS; i++) {
		rows[i].t_enter = i * 700 + (int64_t)(next_random() % 600);
		rows[i].t_exit = rows[i].t_enter + (int64_t)(next_random() % 200);
		rows[i].number = (int32_t)(next_random() % 3);
		rows[i].flags = PTW_ROW_RETURNED;
		memset(rows[i].args, 0, sizeof(rows[i].args));
	}
}

int main(void)
{
	struct ptw_call *calls = malloc(CALLS * sizeof(*calls));
	struct ptw_row *rows = malloc(ROWS * sizeof(*rows));
	int64_t *match = malloc(CALLS * sizeof(*match));
	int64_t *enter = malloc(CALLS * sizeof(*enter));
	int64_t *leave = malloc(CALLS * sizeof(*leave));
	uint64_t met = 0;

	for (int round = 0; round < 20000; round++) {
		struct ptw_clock clock = {0, 1000, 0, 1000};
		uint8_t nargs[512];
		struct ptw_join join = {.clock = &clock, .nargs = nargs, .slack = 10, .tolerance = 500};
		uint64_t row_count = next_random() % (ROWS + 1);
		uint64_t cursor = 0;
		int64_t last = -1;
		uint64_t matched;

		scramble(calls, CALLS * sizeof(*calls));
		scramble(rows, ROWS * sizeof(*rows));
		scramble(nargs, sizeof(nargs));
		if (round & 1)
			tame(calls, rows);
		else
			scramble(&clock, sizeof(clock));
		matched = ptw_join_calls(&join, calls, CALLS / 2, &calls[CALLS / 2], rows, row_count, &cursor, match);
		matched += ptw_join_calls(&join, calls + CALLS / 2, CALLS / 2, NULL, rows, row_count, &cursor,
					  match + CALLS / 2);
		ptw_join_times(&clock, calls, CALLS, enter, leave);
		for (int i = 0; i < CALLS; i++) {
			if (match[i] < 0)
				continue;
			/* each row once, in order, and of the same call */
			if (match[i] <= last || (uint64_t)match[i] >= row_count ||
			    (uint32_t)rows[match[i]].number != calls[i].number)
				abort();
			last = match[i];
			matched--;
			met++;
		}
		if (matched || cursor > row_count)
			abort();
	}
	free(calls);
	free(rows);
	free(match);
	free(enter);
	free(leave);
	return met < 10000;	/* else nothing was tried */
}
