/* SPDX-License-Identifier: MIT */
/* Interpolation between moments. Allocates nothing, borrows the arrays until the next supply. */
#include "timeline.h"

void timeline_init(struct timeline *line)
{
	*line = (struct timeline){ .begun = false };
}

void timeline_supply(struct timeline *line, const int64_t *seqs, const int64_t *times, size_t n)
{
	line->seqs = seqs;
	line->times = times;
	line->n = n;
	line->next = 0;
}

static void pass(struct timeline *line)
{
	line->begun = true;
	line->seq0 = line->seqs[line->next];
	line->t0 = line->times[line->next];
	line->next++;
}

int64_t timeline_between(const struct timeline *line, int64_t x)
{
	if (line->next == line->n)
		return line->begun ? line->t0 : 0;
	const int64_t seq1 = line->seqs[line->next], t1 = line->times[line->next];

	if (!line->begun || seq1 <= line->seq0)
		return t1;
	if (x <= line->seq0 || t1 <= line->t0)
		return line->t0;
	const uint64_t done = (uint64_t)x - (uint64_t)line->seq0;
	const uint64_t span = (uint64_t)seq1 - (uint64_t)line->seq0;
	const uint64_t time = (uint64_t)t1 - (uint64_t)line->t0;
	uint64_t product;

	if (!__builtin_mul_overflow(done, time, &product))
		return line->t0 + (int64_t)(product / span);
	return line->t0 + (int64_t)((unsigned __int128)done * time / span);
}

int64_t timeline_before(struct timeline *line, int64_t x)
{
	while (line->next < line->n && line->seqs[line->next] < x)
		pass(line);
	if (line->next < line->n && line->seqs[line->next] == x && !(line->begun && line->seq0 == x))
		return line->times[line->next];
	return timeline_between(line, x);
}

int64_t timeline_after(struct timeline *line, int64_t x)
{
	while (line->next < line->n && line->seqs[line->next] <= x)
		pass(line);
	return timeline_between(line, x);
}
