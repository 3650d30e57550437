/* SPDX-License-Identifier: MIT */
/*
 * Time between known moments, in integers: t = t0 + (x - s0) * (t1 - t0) / (s1 - s0), rounded down.
 *
 * A moment (seq, t) says that right before block `seq` it was `t`. Two moments at one ordinal are a jump: time
 * passed there and no block ran (a system call, a gap). Asked for ordinals must not go back.
 */
#ifndef PTWEAVE_MERGE_TIMELINE_H
#define PTWEAVE_MERGE_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sums of times, in parts of a nanosecond. */
typedef unsigned __int128 timeline_ns;

#define TIMELINE_NS (UINT64_C(1) << 32) /* of them in a nanosecond: what rounding moves is less than one of 10^9 blocks */

struct timeline {
	bool begun;         /* a moment has been passed: (seq0, t0) */
	int64_t seq0;
	int64_t t0;
	const int64_t *seqs;
	const int64_t *times;
	size_t n;
	size_t next;        /* first moment not passed */
	uint64_t span;      /* from the moment passed to the next one: blocks, and ns; 0: nothing to interpolate */
	uint64_t time;
	uint64_t inverse;   /* of span, for dividing by it (see prepare) */
	unsigned first_shift, second_shift;
	timeline_ns rate;   /* a block, from the moment passed to the next one, rounded down; 0: unknown */
	timeline_ns rest;   /* what that leaves of the whole stretch */
};

void timeline_init(struct timeline *line);
/* Give the moments that follow; the ones not passed of the last time must be among them. */
void timeline_supply(struct timeline *line, const int64_t *seqs, const int64_t *times, size_t n);
/* The same as timeline_between, for whatever comes seldom. */
int64_t timeline_aside(const struct timeline *line, int64_t x);

/* value / span, in a quarter of the time: this is asked for every call and return there was. */
static inline uint64_t timeline_divide(const struct timeline *line, uint64_t value)
{
	const uint64_t high = (uint64_t)((unsigned __int128)value * line->inverse >> 64);

	return (high + ((value - high) >> line->first_shift)) >> line->second_shift;
}

/* When block x is reached, at or behind the moments passed and before the next one. */
static inline int64_t timeline_between(const struct timeline *line, int64_t x)
{
	uint64_t product;

	if (!line->span || x <= line->seq0 ||
	    __builtin_mul_overflow((uint64_t)x - (uint64_t)line->seq0, line->time, &product))
		return timeline_aside(line, x);
	return line->t0 + (int64_t)timeline_divide(line, product);
}

/* True when no moment is left to pass up to block x. */
static inline bool timeline_is_clear(const struct timeline *line, int64_t x)
{
	return line->next == line->n || line->seqs[line->next] > x;
}

/* True when moments before block x are still to pass. */
static inline bool timeline_is_behind(const struct timeline *line, int64_t x)
{
	return line->next < line->n && line->seqs[line->next] < x;
}

/* The next moment is passed. */
void timeline_pass(struct timeline *line);
/* When block x-1 ended, before a jump at x: no moment before x is left. When x began is timeline_between's, when none up
 * to x is left. */
int64_t timeline_arrival(const struct timeline *line, int64_t x);

#endif
