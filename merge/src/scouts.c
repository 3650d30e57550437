/* SPDX-License-Identifier: MIT */
/* Where two flows that went apart agree again; scouts.h says what is guaranteed. */
#include "scouts.h"

#include <errno.h>
#include <stdlib.h>

enum {
	BLOCKS = 1 << 26, /* that a scout may run */
	LEAST = 1 << 14,  /* that it always may, however many were scouted before */
	SHARE = 2,        /* scouted for each one that was walked, at most */
};

/* Lists what a side executes from where it is. */
struct scout {
	struct side *side;
	uint64_t *keys;
	int64_t *seqs;
	size_t n;               /* listed */
	int64_t from;           /* ordinal of the element it began at */
	int64_t limit;          /* ordinal up to which it may go */
	struct element element; /* that it is at, not listed yet */
	int found;              /* there is one */
	size_t level;
};

int scouts_init(struct scouts *scouts, int64_t freely)
{
	int error = 0;

	*scouts = (struct scouts){ .freely = freely };
	sync_init(&scouts->sync);
	for (int i = 0; i < 2; i++) {
		scouts->keys[i] = calloc(SYNC_WINDOW, sizeof(uint64_t));
		scouts->seqs[i] = calloc(SYNC_WINDOW + 1, sizeof(int64_t));
		if (!scouts->keys[i] || !scouts->seqs[i])
			error = -ENOMEM;
	}
	return error;
}

void scouts_deinit(struct scouts *scouts)
{
	for (int i = 0; i < 2; i++) {
		free(scouts->keys[i]);
		free(scouts->seqs[i]);
	}
	sync_deinit(&scouts->sync);
}

void scouts_begin(struct scouts *scouts) { scouts->scouted = 0; }

/* --- a scout ------------------------------------------------------------------------------------------------------ */

static int64_t walked(const struct side sides[2]) { return sides[0].main.walk->next + sides[1].main.walk->next; }

/* Blocks a scout may run now, so that all of them together stay within their share. */
static int64_t allowed(const struct scouts *scouts, const struct side sides[2])
{
	const int64_t left = BLOCKS + SHARE * walked(sides) - scouts->scouted;

	return left > BLOCKS ? BLOCKS : left < LEAST ? LEAST : left;
}

static int scout_begin(const struct scouts *scouts, struct side sides[2], int i, const struct departure *from,
		       struct scout *ret)
{
	*ret = (struct scout){
		.side = &sides[i], .keys = scouts->keys[i], .seqs = scouts->seqs[i], .from = from->next.seq,
		.limit = from->there ? from->next.seq + allowed(scouts, sides) : 0,
		.element = from->next, .found = from->there, .level = from->level,
	};
	return side_scout(&sides[i]);
}

/* It may go on: there is an element, and nothing is before it behind which the frame is not known. */
static bool can_go_on(const struct scout *scout)
{
	const struct element *element = &scout->element;

	return scout->found > 0 && element->seq < scout->limit && (!element->gap || element->seq == scout->from);
}

/* List the element it is at, if it is in the frame or a caller, and go to the next. */
static void scout_step(struct scout *scout)
{
	struct element *element = &scout->element;

	if (element->depth < scout->level && scout->level != ANY_DEPTH)
		scout->level = element->depth;
	if (element->depth <= scout->level) {
		scout->keys[scout->n] = element->key;
		scout->seqs[scout->n++] = element->seq;
	}
	scout->found = side_next(scout->side, &scout->side->scout, element);
}

/* On, until so many are listed, or no more can be. */
static int scout_on(struct scout *scout, size_t wanted, struct sync_window *ret)
{
	while (scout->n < wanted && can_go_on(scout))
		scout_step(scout);
	if (scout->found < 0)
		return scout->found;
	*ret = (struct sync_window){ .keys = scout->keys, .n = scout->n, .whole = !scout->found && scout->side->last };
	scout->seqs[scout->n] = -1;
	return 0;
}

/* --- where their lists agree -------------------------------------------------------------------------------------- */

/*
 * Most differences are a few blocks, and a call that is passed over may be millions: where much was scouted already, it is
 * first looked whether what is listed after a few is enough. 1: both agree there; 0: it is not known.
 */
static int look_close(struct scouts *scouts, struct scout both[2], int64_t ret[2])
{
	static const struct { int64_t blocks; int32_t sure; } stages[] = { /* what takes long may be had for less */
		{ 1 << 9, 8 }, { 1 << 12, 8 }, { 1 << 15, 4 },
	};
	struct sync_window windows[2];
	size_t at[2];

	if (scouts->sync.careful || scouts->scouted < scouts->freely || !both[0].found || !both[1].found)
		return 0;
	for (size_t stage = 0; stage < sizeof(stages) / sizeof(*stages); stage++) {
		for (int i = 0; i < 2; i++) {
			struct scout *scout = &both[i];
			const int64_t end = scout->from + stages[stage].blocks;

			while (scout->n < FIRST_WINDOW && scout->element.seq < end && can_go_on(scout))
				scout_step(scout);
			if (scout->found <= 0)
				return scout->found;
			windows[i] = (struct sync_window){ .keys = scout->keys, .n = scout->n };
		}
		const int found = sync_find_brief(&scouts->sync, &windows[0], &windows[1], stages[stage].sure, at);

		for (int i = 0; i < 2 && found > 0; i++)
			ret[i] = both[i].seqs[at[i]];
		if (found)
			return found;
	}
	return 0;
}

/* In lists that get longer. 1: found; 0: not. */
static int look_far(struct scouts *scouts, const struct side sides[2], struct scout both[2], int64_t ret[2])
{
	struct sync_window windows[2] = { 0 };
	size_t wanted = scouts->sync.careful ? SYNC_WINDOW : FIRST_WINDOW, at[2] = { 0 };

	for (;;) {
		bool cut = true;
		int found;

		for (int i = 0; i < 2; i++) {
			const int error = scout_on(&both[i], wanted, &windows[i]);

			if (error)
				return error;
			cut = cut && windows[i].n < wanted;
		}
		sync_allow(&scouts->sync, walked(sides));
		found = sync_find(&scouts->sync, &windows[0], &windows[1], at);
		for (int i = 0; i < 2 && found > 0; i++)
			ret[i] = both[i].seqs[at[i]];
		if (found || cut || wanted == SYNC_WINDOW)
			return found;
		wanted = 8 * wanted < SYNC_WINDOW ? 8 * wanted : SYNC_WINDOW;
	}
}

int scouts_find(struct scouts *scouts, struct side sides[2], const struct departure from[2], bool careful, int64_t ret[2])
{
	struct scout both[2];
	int found = 0;

	scouts->sync.careful = careful;
	ret[0] = ret[1] = -1;
	for (int i = 0; !found && i < 2; i++)
		found = scout_begin(scouts, sides, i, &from[i], &both[i]);
	if (!found)
		found = look_close(scouts, both, ret);
	if (!found)
		found = look_far(scouts, sides, both, ret);
	for (int i = 0; i < 2 && found >= 0; i++)
		if (from[i].there)
			scouts->scouted += sides[i].scout.walk->next - from[i].next.seq;
	return found;
}
