/* SPDX-License-Identifier: MIT */
/*
 * Two flows side by side. As long as they agree both go on, whole paths at a time where they can. Where they go apart,
 * scouts run ahead on both sides and list what is executed in the frame in which it happened, and in its callers; calls
 * from there are passed over. Where these lists agree again, both sides go on; what they did until then is the
 * difference. Where they do not, the frame is left on both sides.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "side.h"
#include "sync.h"

enum {
	PLACES_MAX = 1 << 16,      /* differences kept apart */
	FIRST_WINDOW = 128,        /* elements scouted at first; eight times as many each time nothing is found */
	SCOUT_BLOCKS = 1 << 26,    /* blocks a scout may run */
	SCOUT_LEAST = 1 << 14,     /* blocks it always may, however many were scouted before */
	SCOUT_SHARE = 2,           /* blocks scouted for each one that was walked, at most */
	ANY_DEPTH = INT32_MAX,
};

enum state { AGREE, APART, REJOIN, ENDED };

/* What a side does while it is apart. */
struct excursion {
	struct element next;  /* element it is at */
	bool there;           /* there is one; else it ended */
	bool passed;          /* it is done with: the next one is to be fetched */
	size_t level;         /* frames of the one it happened in: what is deeper is passed over */
	int64_t sync;         /* ordinal of the element to get to; -1 the end */
	struct ptm_way way;
};

struct ptm_compare {
	struct side sides[2];
	enum state state;
	bool leaving;         /* the frame is being left: no agreement in it */
	struct element agreed[2]; /* last elements both agreed in; seq -1 none */
	struct element next[2];   /* elements fetched while they agree */
	bool fetched[2];
	bool there[2];
	int64_t scouted;
	int64_t freely;       /* blocks to be scouted before it is looked whether less will do */
	int64_t n_agreed;
	struct excursion out[2];
	int32_t kind;

	struct sync sync;
	uint64_t *keys[2];    /* scouted */
	int64_t *seqs[2];

	struct ptm_difference *found;
	size_t n_found;
	size_t found_room;
	uint32_t *slots;      /* open addressing: index + 1 */
	size_t n_slots;
	int64_t others;
};

int ptm_compare_create(const struct ptm_program *a, const struct ptm_places *places_a, struct ptm_tree *tree_a,
		       const struct ptm_program *b, const struct ptm_places *places_b, struct ptm_tree *tree_b,
		       int64_t freely, struct ptm_compare **ret)
{
	struct ptm_compare *compare = calloc(1, sizeof(*compare));
	int error;

	if (!compare)
		return -ENOMEM;
	compare->freely = freely;
	error = side_init(&compare->sides[0], a, places_a, tree_a);
	if (!error)
		error = side_init(&compare->sides[1], b, places_b, tree_b);
	compare->n_slots = 2 * PLACES_MAX;
	compare->slots = calloc(compare->n_slots, sizeof(*compare->slots));
	for (int i = 0; i < 2; i++) {
		compare->keys[i] = calloc(SYNC_WINDOW, sizeof(uint64_t));
		compare->seqs[i] = calloc(SYNC_WINDOW + 1, sizeof(int64_t));
		if (!compare->keys[i] || !compare->seqs[i])
			error = -ENOMEM;
	}
	if (error || !compare->slots) {
		ptm_compare_destroy(compare);
		return error ? error : -ENOMEM;
	}
	ptm_compare_begin(compare);
	*ret = compare;
	return 0;
}

void ptm_compare_destroy(struct ptm_compare *compare)
{
	if (!compare)
		return;
	for (int i = 0; i < 2; i++) {
		side_deinit(&compare->sides[i]);
		free(compare->keys[i]);
		free(compare->seqs[i]);
	}
	sync_deinit(&compare->sync);
	free(compare->found);
	free(compare->slots);
	free(compare);
}

void ptm_compare_begin(struct ptm_compare *compare)
{
	for (int i = 0; i < 2; i++) {
		side_begin(&compare->sides[i]);
		compare->agreed[i] = (struct element){ .seq = -1, .node = PTM_NONE };
		compare->fetched[i] = false;
	}
	compare->scouted = 0;
	compare->state = AGREE;
	compare->n_agreed = 0;
	compare->n_found = 0;
	compare->others = 0;
	memset(compare->slots, 0, compare->n_slots * sizeof(*compare->slots));
}

int ptm_compare_feed(struct ptm_compare *compare, int side, const int64_t *seqs, const int32_t *paths, size_t n,
		     const struct ptm_event *events, size_t n_events, int last)
{
	if (side != 0 && side != 1)
		return -EINVAL;
	return side_feed(&compare->sides[side], seqs, paths, n, events, n_events, last != 0);
}

size_t ptm_compare_ahead(const struct ptm_compare *compare, int side)
{
	return side_ahead(&compare->sides[side & 1]);
}

const struct ptm_difference *ptm_compare_found(const struct ptm_compare *compare, size_t *ret, int64_t *others,
					       int64_t *agreed)
{
	*ret = compare->n_found;
	*others = compare->others;
	*agreed = compare->n_agreed;
	return compare->found;
}

/* --- while they agree --------------------------------------------------------------------------------------------- */

/* Both take the path they are at, if it is the same and nothing can happen in it. */
static bool both_take_path(struct ptm_compare *compare)
{
	struct side *a = &compare->sides[0], *b = &compare->sides[1];
	const uint64_t hash = side_whole_path(a);

	if (!hash || hash != side_whole_path(b))
		return false;
	for (int i = 0; i < 2; i++) {
		struct side *side = &compare->sides[i];
		struct element *agreed = &compare->agreed[i];
		const int64_t before = side->main.walk->next;

		agreed->seq = side_take_path(side, &agreed->block);
		agreed->depth = side->main.walk->frames.n;
		agreed->node = frames_top(&side->main.walk->frames)->node;
		if (!i)
			compare->n_agreed += agreed->seq + 1 - before;
	}
	return true;
}

/* A side goes on from the element it is at: the first one that the other has not. */
static void begin_excursion(struct ptm_compare *compare, int i, const struct element *next, bool there)
{
	struct excursion *out = &compare->out[i];
	const struct element *agreed = &compare->agreed[i];

	*out = (struct excursion){ .next = *next, .there = there, .level = agreed->seq < 0 ? 0 : agreed->depth };
	if (out->level == 0 || (there && next->gap))
		out->level = ANY_DEPTH;
	out->way = (struct ptm_way){
		.seq = there ? next->seq : -1,
		.block = there ? (int32_t)next->block : -1,
		.from_seq = agreed->seq,
		.from_block = agreed->seq < 0 ? -1 : (int32_t)agreed->block,
		.stack = agreed->seq < 0 ? (there ? next->node : PTM_NONE) : agreed->node,
		.sync_seq = -1,
	};
}

/* Have both sides' next elements. 1: they are there, or their ends; 0: rows are used up. */
static int fetch(struct ptm_compare *compare)
{
	for (int i = 0; i < 2; i++) {
		struct side *side = &compare->sides[i];
		int found;

		if (compare->fetched[i])
			continue;
		found = side_next(side, &side->main, &compare->next[i]);
		if (found < 0)
			return found;
		if (!found && !side->last)
			return 0;
		compare->there[i] = found;
		compare->fetched[i] = true;
	}
	compare->fetched[0] = compare->fetched[1] = false;
	return 1;
}

static void go_apart(struct ptm_compare *compare)
{
	const bool *there = compare->there;
	bool gap = false;

	for (int i = 0; i < 2; i++) {
		begin_excursion(compare, i, &compare->next[i], there[i]);
		gap = gap || (there[i] && compare->next[i].gap);
	}
	compare->kind = gap ? PTM_APART_GAP : there[0] && there[1] ? PTM_APART_FLOW : PTM_APART_END;
	if (gap)
		compare->out[0].level = compare->out[1].level = ANY_DEPTH;
	compare->leaving = false;
	compare->state = APART;
}

static int step_agreeing(struct ptm_compare *compare)
{
	const struct element *a = &compare->next[0], *b = &compare->next[1];
	int found;

	if (!compare->fetched[0] && !compare->fetched[1] && both_take_path(compare))
		return 0;
	found = fetch(compare);
	if (found <= 0)
		return found;
	if (!compare->there[0] && !compare->there[1]) {
		compare->state = ENDED;
		return 0;
	}
	if (!compare->there[0] || !compare->there[1] || a->key != b->key || a->gap || b->gap) {
		go_apart(compare);
		return 0;
	}
	compare->agreed[0] = *a;
	compare->agreed[1] = *b;
	compare->n_agreed++;
	return 0;
}

/* --- where they agree again --------------------------------------------------------------------------------------- */

static int64_t walked(const struct ptm_compare *compare)
{
	return compare->sides[0].main.walk->next + compare->sides[1].main.walk->next;
}

/* Blocks a scout may run now, so that all of them together stay within their share. */
static int64_t scout_limit(const struct ptm_compare *compare)
{
	const int64_t left = SCOUT_BLOCKS + SCOUT_SHARE * walked(compare) - compare->scouted;

	return left > SCOUT_BLOCKS ? SCOUT_BLOCKS : left < SCOUT_LEAST ? SCOUT_LEAST : left;
}

/* A scout that lists what a side executes from where it is, in the frame in which it happened and its callers. */
struct scouting {
	struct element element; /* that it is at, not listed yet */
	int found;              /* there is one */
	size_t level;
	int64_t limit;          /* ordinal up to which it may go */
	size_t n;               /* listed */
};

static int scout_begin(struct ptm_compare *compare, int i, struct scouting *ret)
{
	const struct excursion *out = &compare->out[i];

	*ret = (struct scouting){ .element = out->next, .found = out->there, .level = out->level,
				  .limit = out->there ? out->next.seq + scout_limit(compare) : 0 };
	return side_scout(&compare->sides[i]);
}

/* The scout may go on: there is an element, and nothing is before it behind which the frame is not known. */
static bool can_scout(const struct ptm_compare *compare, int i, const struct scouting *scouting)
{
	const struct element *element = &scouting->element;

	return scouting->found > 0 && element->seq < scouting->limit &&
	       (!element->gap || element->seq == compare->out[i].next.seq);
}

/* List the element it is at, if it is in the frame or a caller, and go to the next. */
static void scout_step(struct ptm_compare *compare, int i, struct scouting *scouting)
{
	struct element *element = &scouting->element;

	if (element->depth < scouting->level && scouting->level != ANY_DEPTH)
		scouting->level = element->depth;
	if (element->depth <= scouting->level) {
		compare->keys[i][scouting->n] = element->key;
		compare->seqs[i][scouting->n++] = element->seq;
	}
	scouting->found = side_next(&compare->sides[i], &compare->sides[i].scout, element);
}

/* On, until so many are listed, or no more can be. */
static int scout_on(struct ptm_compare *compare, int i, size_t wanted, struct scouting *scouting,
		    struct sync_window *ret)
{
	const struct side *side = &compare->sides[i];

	while (scouting->n < wanted && can_scout(compare, i, scouting))
		scout_step(compare, i, scouting);
	if (scouting->found < 0)
		return scouting->found;
	*ret = (struct sync_window){ .keys = compare->keys[i], .n = scouting->n, .whole = !scouting->found && side->last };
	compare->seqs[i][scouting->n] = -1;
	return 0;
}

/*
 * Most differences are a few blocks, and a call that is passed over may be millions: where much was scouted already, it is
 * first looked whether what is listed after a few is enough. 1: both agree there; 0: it is not known.
 */
static int look_close(struct ptm_compare *compare, struct scouting scouts[2], int64_t seqs[2])
{
	static const struct { int64_t blocks; int32_t sure; } stages[] = { /* what takes long may be had for less */
		{ 1 << 9, 8 }, { 1 << 12, 8 }, { 1 << 15, 4 },
	};
	struct sync_window windows[2];
	size_t at[2];

	if (compare->sync.careful || compare->scouted < compare->freely || !scouts[0].found || !scouts[1].found)
		return 0;
	for (size_t stage = 0; stage < sizeof(stages) / sizeof(*stages); stage++) {
		for (int i = 0; i < 2; i++) {
			const int64_t end = compare->out[i].next.seq + stages[stage].blocks;

			while (scouts[i].n < FIRST_WINDOW && scouts[i].element.seq < end && can_scout(compare, i, &scouts[i]))
				scout_step(compare, i, &scouts[i]);
			if (scouts[i].found <= 0)
				return scouts[i].found;
			windows[i] = (struct sync_window){ .keys = compare->keys[i], .n = scouts[i].n };
		}
		const int found = sync_find_brief(&compare->sync, &windows[0], &windows[1], stages[stage].sure, at);

		for (int i = 0; i < 2 && found > 0; i++)
			seqs[i] = compare->seqs[i][at[i]];
		if (found)
			return found;
	}
	return 0;
}

/* Find where what scouts list agrees. 1: found; 0: not. */
static int search_agreement(struct ptm_compare *compare, struct scouting scouts[2], int64_t seqs[2])
{
	struct sync_window windows[2] = { 0 };
	size_t wanted = compare->sync.careful ? SYNC_WINDOW : FIRST_WINDOW, at[2] = { 0 };

	for (;;) {
		bool cut = true;
		int found;

		for (int i = 0; i < 2; i++) {
			const int error = scout_on(compare, i, wanted, &scouts[i], &windows[i]);

			if (error)
				return error;
			cut = cut && windows[i].n < wanted;
		}
		sync_allow(&compare->sync, walked(compare));
		found = sync_find(&compare->sync, &windows[0], &windows[1], at);
		for (int i = 0; i < 2 && found > 0; i++)
			seqs[i] = compare->seqs[i][at[i]];
		if (found || cut || wanted == SYNC_WINDOW)
			return found;
		wanted = 8 * wanted < SYNC_WINDOW ? 8 * wanted : SYNC_WINDOW;
	}
}

/* Find where both go on alike; sets where to. 1 found, 0 not. */
static int find_agreement(struct ptm_compare *compare)
{
	struct scouting scouts[2];
	int64_t seqs[2] = { -1, -1 };
	int found = 0;

	compare->sync.careful = compare->kind == PTM_APART_GAP;
	for (int i = 0; !found && i < 2; i++)
		found = scout_begin(compare, i, &scouts[i]);
	if (!found)
		found = look_close(compare, scouts, seqs);
	if (!found)
		found = search_agreement(compare, scouts, seqs);
	for (int i = 0; i < 2 && found >= 0; i++) {
		if (compare->out[i].there)
			compare->scouted += compare->sides[i].scout.walk->next - compare->out[i].next.seq;
		if (found)
			compare->out[i].sync = seqs[i];
	}
	return found;
}

/* --- the difference ----------------------------------------------------------------------------------------------- */

static void count_call(const struct side *side, struct ptm_way *way, const struct element *element)
{
	const struct ptm_block *block = &side->program->blocks[element->block];

	if (!(block->flags & PTM_ENTRY))
		return;
	for (uint32_t i = 0; i < way->n_callees; i++) {
		if (way->callees[i] == block->function) {
			way->calls[i]++;
			return;
		}
	}
	if (way->n_callees < PTM_CALLEES) {
		way->callees[way->n_callees] = block->function;
		way->calls[way->n_callees++] = 1;
	}
}

/* The element is where it agrees again, or out of the frame. */
static bool is_back(const struct ptm_compare *compare, const struct excursion *out)
{
	if (!out->there)
		return true;
	return compare->leaving ? out->next.depth < out->level : out->next.seq == out->sync;
}

/* Go to where it agrees again, or out of the frame. 1: there; 0: rows are used up. */
static int rejoin(struct ptm_compare *compare, int i)
{
	struct side *side = &compare->sides[i];
	struct excursion *out = &compare->out[i];

	for (;;) {
		if (out->passed) {
			const int found = side_next(side, &side->main, &out->next);

			if (found < 0)
				return found;
			if (!found && !side->last)
				return 0;
			out->there = found;
			out->passed = false;
		}
		if (is_back(compare, out))
			return 1;
		if (out->next.depth < out->level && out->level != ANY_DEPTH)
			out->level = out->next.depth;
		out->way.blocks++;
		out->way.instructions += side->program->blocks[out->next.block].instructions;
		if (out->next.depth == out->level + 1)
			count_call(side, &out->way, &out->next);
		out->passed = true;
	}
}

static uint64_t place_of(const struct ptm_compare *compare)
{
	uint64_t hash = (uint64_t)compare->kind;

	for (int i = 0; i < 2; i++) {
		const struct ptm_way *way = &compare->out[i].way;

		hash = (hash ^ (uint32_t)way->from_block) * 0x9e3779b97f4a7c15u;
		hash = ((hash ^ hash >> 29) ^ (uint32_t)way->block) * 0xd6e8feb86659fd93u;
		hash ^= hash >> 32;
	}
	return hash;
}

static bool same_place(const struct ptm_compare *compare, const struct ptm_difference *other)
{
	for (int i = 0; i < 2; i++)
		if (compare->out[i].way.block != other->ways[i].block ||
		    compare->out[i].way.from_block != other->ways[i].from_block)
			return false;
	return compare->kind == other->kind;
}

static int add_difference(struct ptm_compare *compare, uint32_t *slot)
{
	struct ptm_difference *difference;

	if (compare->n_found == PLACES_MAX) {
		compare->others++;
		return 0;
	}
	if (compare->n_found == compare->found_room) {
		const size_t room = compare->found_room ? 2 * compare->found_room : 64;
		struct ptm_difference *found = realloc(compare->found, room * sizeof(*found));

		if (!found)
			return -ENOMEM;
		compare->found = found;
		compare->found_room = room;
	}
	difference = &compare->found[compare->n_found++];
	*difference = (struct ptm_difference){ .kind = compare->kind, .times = 1 };
	difference->ways[0] = compare->out[0].way;
	difference->ways[1] = compare->out[1].way;
	*slot = (uint32_t)compare->n_found;
	return 0;
}

static int record(struct ptm_compare *compare)
{
	const size_t mask = compare->n_slots - 1;

	for (int i = 0; i < 2; i++)
		compare->out[i].way.sync_seq = compare->out[i].there ? compare->out[i].next.seq : -1;
	for (size_t at = place_of(compare) & mask;; at = (at + 1) & mask) {
		struct ptm_difference *difference;

		if (!compare->slots[at])
			return add_difference(compare, &compare->slots[at]);
		difference = &compare->found[compare->slots[at] - 1];
		if (!same_place(compare, difference))
			continue;
		difference->times++;
		for (int i = 0; i < 2; i++) {
			difference->ways[i].blocks += compare->out[i].way.blocks;
			difference->ways[i].instructions += compare->out[i].way.instructions;
		}
		return 0;
	}
}

/* Both are where they agree again: what they are at is agreed in. After a frame was left it may not be. */
static int arrive(struct ptm_compare *compare)
{
	struct excursion *a = &compare->out[0], *b = &compare->out[1];
	int error;

	if (compare->leaving && a->there && b->there && a->next.key != b->next.key) {
		a->level = a->next.depth;
		b->level = b->next.depth;
		compare->leaving = false;
		compare->state = APART;
		return 0;
	}
	error = record(compare);
	if (error)
		return error;
	if (!a->there || !b->there) {
		compare->state = ENDED;
		return 0;
	}
	compare->agreed[0] = a->next;
	compare->agreed[1] = b->next;
	compare->n_agreed++;
	compare->state = AGREE;
	return 0;
}

static int step_apart(struct ptm_compare *compare)
{
	const int found = find_agreement(compare);

	if (found < 0)
		return found;
	compare->leaving = !found;
	compare->state = REJOIN;
	return 0;
}

/* --- running ------------------------------------------------------------------------------------------------------ */

/* Which sides lack rows: bits 0 and 1. A scout must be able to look SIDE_AHEAD rows ahead. */
static int lacking(const struct ptm_compare *compare, size_t wanted)
{
	int lacks = 0;

	for (int i = 0; i < 2; i++)
		if (!compare->sides[i].last && side_ahead(&compare->sides[i]) < wanted)
			lacks |= 1 << i;
	return lacks;
}

int ptm_compare_run(struct ptm_compare *compare)
{
	int error = 0;

	while (!error && compare->state != ENDED) {
		int lacks = lacking(compare, compare->state == APART ? SIDE_AHEAD : 1);

		if (lacks)
			return lacks;
		if (compare->state == AGREE) {
			error = step_agreeing(compare);
		} else if (compare->state == APART) {
			error = step_apart(compare);
		} else {
			const int first = rejoin(compare, 0), second = first < 0 ? first : rejoin(compare, 1);

			if (second < 0)
				error = second;
			else if (first && second)
				error = arrive(compare);
		}
	}
	return error;
}

/* --- plain sequences ---------------------------------------------------------------------------------------------- */

int ptm_correspond(const uint64_t *a, size_t n_a, const uint64_t *b, size_t n_b, int64_t *ret)
{
	struct sync sync;
	size_t i = 0, j = 0;
	int error = 0;

	sync_init(&sync);
	for (size_t k = 0; k < n_a; k++)
		ret[k] = -1;
	while (i < n_a && j < n_b && error >= 0) {
		size_t at[2] = { 1, 1 };

		if (a[i] == b[j]) {
			ret[i++] = (int64_t)j++;
			continue;
		}
		error = 0;
		for (size_t wanted = FIRST_WINDOW; !error && wanted <= SYNC_WINDOW; wanted *= 8) {
			const size_t most_a = n_a - i, most_b = n_b - j;

			sync_allow(&sync, (int64_t)(i + j));
			/* without enough edits for all there is, nothing found does not mean that there is nothing */
			const bool all = most_a + most_b <= (size_t)sync.edits;
			const struct sync_window left = { a + i, most_a < wanted ? most_a : wanted, all && most_a <= wanted };
			const struct sync_window right = { b + j, most_b < wanted ? most_b : wanted, all && most_b <= wanted };

			error = sync_find(&sync, &left, &right, at);
		}
		i += error ? at[0] : 1;
		j += error ? at[1] : 1;
	}
	sync_deinit(&sync);
	return error < 0 ? error : 0;
}
