/* SPDX-License-Identifier: MIT */
/*
 * Process mode: the heap's memory in units of 64 KiB. Runs of units are given out and taken back, neighbours that are
 * free are joined. What is known of a unit lies in PTW_META, never in the unit itself.
 *
 * For all processes of the program, under one lock. Not signal-safe (as malloc is not).
 */
#ifndef PTW_UNITS_H
#define PTW_UNITS_H

#include "layout.h"

#include "sys.h"

#include <stdbool.h>

enum ptw_unit_kind {
	PTW_UNIT_NEVER = 0, /* not given out yet, or inside a run */
	PTW_UNIT_BLOCK = 249, /* first of a run that is a block of malloc's */
	PTW_UNIT_RUN = 250, /* first of another that is in use */
	PTW_UNIT_FREE = 251,
	/* 1 + class: a span of that size class */
};

struct ptw_unit {
	uint8_t kind;
	uint8_t dirty; /* may hold other bytes than zeros */
	uint16_t owner; /* slot of a span's owner */
	uint32_t run;  /* units: in a run's first unit, and in the last of a free one; in a span, distance to its first */
	uint32_t next, prev; /* of free runs, unit + 1 */
};

#define ptw_units ((struct ptw_unit *)PTW_META_UNITS)

static inline bool ptw_unit_begins_run(const struct ptw_unit *unit)
{
	return unit->kind == PTW_UNIT_RUN || unit->kind == PTW_UNIT_BLOCK;
}

static inline uint32_t ptw_unit_of(uint64_t address) { return (uint32_t)((address - PTW_HEAP) / PTW_UNIT); }
static inline uint64_t ptw_unit_address(uint32_t unit) { return PTW_HEAP + unit * PTW_UNIT; }

/* A run of `count` units; UINT32_MAX when there is no room. With `zeroed`, all bytes are zeros. */
PTW_HIDDEN uint32_t ptw_units_take(uint32_t count, bool zeroed);

/* Give back a run, or its `count` last units when its length was corrected before. */
PTW_HIDDEN void ptw_units_give(uint32_t first, uint32_t count);

/* Give back units that are any part of one run: what is left of it stays a run, or two. */
PTW_HIDDEN void ptw_units_cut(uint32_t first, uint32_t count);

/* Units up to this one were given out some time. */
PTW_HIDDEN bool ptw_units_known(uint32_t unit);

/* Make all bytes zeros of units that nobody uses yet. */
PTW_HIDDEN void ptw_units_clean(uint32_t first, uint32_t count);

/* Make a run longer where it lies; what comes along is not zeroed. */
PTW_HIDDEN bool ptw_units_extend(uint32_t first, uint32_t count, uint32_t wanted);

#endif
