/* SPDX-License-Identifier: MIT */
/*
 * The greedy algorithm of E. Myers ("An O(ND) difference algorithm and its variations", 1986), stopped where one of the
 * two windows ends: what follows is not known. Of the stretches that agree on the way, the first that is long enough to
 * be no accident is where both go on.
 */
#include "sync.h"

#include <errno.h>
#include <stdlib.h>

/* Elements in a row that are no accident. */
enum { SURE = 3, SURE_BEHIND_HOLE = 24 };

enum {
	PLACES = 1 << 28, /* that may be looked at in any case: half a second */
	PLACES_SHARE = 4, /* and for each element that was gone through */
};

struct stretch {
	int32_t a;
	int32_t b;
	int32_t length;
};

void sync_init(struct sync *sync)
{
	*sync = (struct sync){ .edits = SYNC_EDITS };
}

void sync_deinit(struct sync *sync)
{
	free(sync->rows);
	*sync = (struct sync){ 0 };
}

void sync_allow(struct sync *sync, int64_t walked)
{
	const int64_t left = PLACES + PLACES_SHARE * walked - sync->spent;

	sync->edits = SYNC_EDITS;
	while (sync->edits > SYNC_LEAST && (int64_t)sync->edits * sync->edits / 2 > left)
		sync->edits /= 2;
}

/* Row d holds the furthest place on each of the diagonals -d, -d + 2, …, d: d + 1 of them. */
static size_t row_of(int32_t d)
{
	return (size_t)d * ((size_t)d + 1) / 2;
}

static int make_room(struct sync *sync, int32_t d)
{
	const size_t wanted = row_of(d + 1);
	size_t room = sync->room ? sync->room : 1024;
	int32_t *rows;

	if (wanted <= sync->room)
		return 0;
	while (room < wanted)
		room *= 2;
	rows = realloc(sync->rows, room * sizeof(*rows));
	if (!rows)
		return -ENOMEM;
	sync->rows = rows;
	sync->room = room;
	return 0;
}

static int32_t *place(const struct sync *sync, int32_t d, int32_t k)
{
	return &sync->rows[row_of(d) + (size_t)((k + d) / 2)];
}

/* True when diagonal `k` was best reached from the one above it, `reached[0]`: an element of `b` left out. The one
 * below it is `reached[-1]`. */
static bool above(const int32_t *reached, int32_t d, int32_t k)
{
	return k == -d || (k != d && reached[-1] < reached[0]);
}

static bool from_above(const struct sync *sync, int32_t d, int32_t k)
{
	return above(place(sync, d - 1, k + 1), d, k);
}

/* Where diagonal `k` begins with `d` edits, before what agrees. */
static int32_t begin(const struct sync *sync, int32_t d, int32_t k)
{
	if (!d)
		return 0;
	const int32_t *reached = place(sync, d - 1, k + 1);

	return above(reached, d, k) ? reached[0] : reached[-1] + 1;
}

/* Edits until a window ends; `*end` is the diagonal. -1: more than `limit`, `*end` is then the furthest. */
static int32_t search(struct sync *sync, const struct sync_window *a, const struct sync_window *b, int32_t limit,
		      int32_t *end)
{
	const int32_t n = (int32_t)a->n, m = (int32_t)b->n;

	for (int32_t d = 0; d <= limit; d++) {
		int32_t best = -1;

		if (make_room(sync, d))
			return -ENOMEM;
		sync->spent += d + 1;
		for (int32_t k = -d; k <= d; k += 2) {
			int32_t x = begin(sync, d, k);

			if (x > n || x - k > m)
				x = x > n ? n + 1 : x; /* outside: kept, so that its neighbours are right */
			else
				while (x < n && x - k < m && a->keys[x] == b->keys[x - k])
					x++;
			*place(sync, d, k) = x;
			if (x <= n && x - k <= m && (x == n || x - k == m) && !(a->whole && x < n) && !(b->whole && x - k < m)) {
				*end = k;
				return d;
			}
			if (x <= n && x - k <= m && 2 * x - k > best) {
				best = 2 * x - k;
				*end = k;
			}
		}
	}
	return -1;
}

/* The first sure stretch on the way to (d, k), else the longest; length 0: none. */
static struct stretch first_sure(const struct sync *sync, int32_t d, int32_t k, int32_t *total)
{
	const int32_t enough = sync->careful ? SURE_BEHIND_HOLE : SURE;
	struct stretch sure = { 0 }, longest = { 0 };

	*total = 0;
	for (;;) {
		const int32_t x = begin(sync, d, k), length = *place(sync, d, k) - x;
		const struct stretch found = { .a = x, .b = x - k, .length = length };

		*total += length > 0 ? length : 0;
		if (length >= enough)
			sure = found;
		if (length >= longest.length && length > 0)
			longest = found;
		if (!d)
			break;
		k += from_above(sync, d, k) ? 1 : -1;
		d--;
	}
	return sure.length ? sure : longest;
}

int sync_find_brief(struct sync *sync, const struct sync_window *a, const struct sync_window *b, int32_t sure,
		    size_t at[2])
{
	int32_t k = 0, total;
	const int32_t d = search(sync, a, b, SYNC_LEAST, &k);

	if (d < 0)
		return d < -1 ? d : 0;
	const struct stretch found = first_sure(sync, d, k, &total);

	if (found.length < sure || found.a != begin(sync, d, k)) /* the last one ends where a window does */
		return 0;
	at[0] = (size_t)found.a;
	at[1] = (size_t)found.b;
	return 1;
}

int sync_find(struct sync *sync, const struct sync_window *a, const struct sync_window *b, size_t at[2])
{
	const size_t shorter = a->n < b->n ? a->n : b->n;
	const size_t both = a->n + b->n;
	const int32_t limit = both < (size_t)sync->edits ? (int32_t)both : sync->edits;
	struct stretch found;
	int32_t k = 0, total, d = search(sync, a, b, limit, &k);

	if (d < -1)
		return d;
	found = first_sure(sync, d < 0 ? limit : d, k, &total);
	if (found.length >= SURE || (found.length && (size_t)total * 4 >= shorter)) {
		at[0] = (size_t)found.a;
		at[1] = (size_t)found.b;
		return 1;
	}
	if (!a->whole || !b->whole)
		return 0;
	at[0] = found.length ? (size_t)found.a : a->n;
	at[1] = found.length ? (size_t)found.b : b->n;
	return 1;
}
