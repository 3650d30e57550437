/* SPDX-License-Identifier: MIT */
/* Interpolation between moments. Allocates nothing, borrows the arrays until the next supply. */
#include "timeline.h"

void timeline_init(struct timeline *line)
{
	*line = (struct timeline){ .begun = false };
}

/* Division by an invariant integer as a multiplication: exact for every dividend of 64 bits (T. Granlund, P. Montgomery,
 * PLDI 1994, figure 4.1). */
static void prepare_division(struct timeline *line)
{
	const uint64_t span = line->span;
	const unsigned bits = span > 1 ? 64 - (unsigned)__builtin_clzll(span - 1) : 0; /* span <= 1 << bits */
	const uint64_t power = bits < 64 ? UINT64_C(1) << bits : 0;

	line->inverse = (uint64_t)(((unsigned __int128)(power - span) << 64) / span) + 1;
	line->first_shift = bits > 0;
	line->second_shift = bits > 0 ? bits - 1 : 0;
}

static void prepare_rate(struct timeline *line)
{
	const timeline_ns time = (timeline_ns)line->time * TIMELINE_NS;

	line->rate = time / line->span;
	line->rest = time % line->span;
}

/* What interpolation needs, once for all blocks between two moments. */
static void prepare(struct timeline *line)
{
	line->span = line->time = 0;
	line->rate = line->rest = 0;
	if (line->next == line->n || !line->begun)
		return;
	if (line->seqs[line->next] > line->seq0 && line->times[line->next] > line->t0) {
		line->span = (uint64_t)line->seqs[line->next] - (uint64_t)line->seq0;
		line->time = (uint64_t)line->times[line->next] - (uint64_t)line->t0;
		prepare_rate(line);
		prepare_division(line);
	}
}

void timeline_supply(struct timeline *line, const int64_t *seqs, const int64_t *times, size_t n)
{
	line->seqs = seqs;
	line->times = times;
	line->n = n;
	line->next = 0;
	prepare(line);
}

void timeline_pass(struct timeline *line)
{
	line->begun = true;
	line->seq0 = line->seqs[line->next];
	line->t0 = line->times[line->next];
	line->next++;
	prepare(line);
}

int64_t timeline_aside(const struct timeline *line, int64_t x)
{
	if (line->next == line->n)
		return line->begun ? line->t0 : 0;
	if (!line->begun || line->seqs[line->next] <= line->seq0)
		return line->times[line->next];
	if (x <= line->seq0 || !line->span)
		return line->t0;
	const uint64_t done = (uint64_t)x - (uint64_t)line->seq0;

	return line->t0 + (int64_t)((unsigned __int128)done * line->time / line->span);
}

int64_t timeline_arrival(const struct timeline *line, int64_t x)
{
	if (line->next < line->n && line->seqs[line->next] == x && !(line->begun && line->seq0 == x))
		return line->times[line->next];
	return timeline_between(line, x);
}
