/* SPDX-License-Identifier: MIT */
/*
 * What differs between two pages, byte by byte. A page is 64 lines of 64 bytes, and most of them are equal: what differs
 * has a bit for each line, and for each line that differs a bit for each of its bytes.
 *
 * Plain functions of their arguments, with the widest registers the processor has. Pages lie at multiples of 64.
 * Signal-safe.
 */
#ifndef PTW_DIFF_H
#define PTW_DIFF_H

#include "layout.h"

#include <stdbool.h>

enum { PTW_DIFF_WORDS = PTW_PAGE / 64, PTW_DIFF_RUNS = 2 * PTW_DIFF_WORDS };

#define PTW_ALL_LINES (~0ull)

struct ptw_diff {
	uint64_t lines;                /* bit i: something differs in bits[i] */
	uint64_t bits[PTW_DIFF_WORDS]; /* bit b of word w: byte 64 w + b */
};

/* Where `page` and `twin` differ; how many bytes that is. Nobody writes to them meanwhile. */
uint32_t ptw_diff(const void *page, const void *twin, struct ptw_diff *ret) __attribute__((visibility("hidden")));

/* The lines that differ, of those in `among`: the others are not read. `page` may be written to meanwhile: what differed
 * all the time is found. */
uint64_t ptw_diff_lines(const void *page, const void *twin, uint64_t among) __attribute__((visibility("hidden")));

/* Copy lines from `from`, which may be written to meanwhile, to `one` and `two`: both get the same. */
void ptw_diff_take(void *one, void *two, const void *from, uint64_t lines) __attribute__((visibility("hidden")));

/* Copy the bytes of `diff` from `from` to `to`, and no others: what lies between them is not written to. With `whole`,
 * an aligned word of up to 8 bytes of which any byte differs is stored at once, so that nobody reads half of it;
 * then nobody else may write to the page meanwhile. */
void ptw_diff_apply(void *to, const void *from, const struct ptw_diff *diff, bool whole)
	__attribute__((visibility("hidden")));

/* The offset of a byte that is in `diff` and differs between `shared` and `twin`; -1: there is none. */
int ptw_diff_overlap(const void *shared, const void *twin, const struct ptw_diff *diff)
	__attribute__((visibility("hidden")));

/* Runs of bytes: their number (0: more than PTW_DIFF_RUNS), two in a word of `ret`, offset | length << 16. */
uint32_t ptw_diff_runs(const struct ptw_diff *diff, uint64_t *ret) __attribute__((visibility("hidden")));

#endif
