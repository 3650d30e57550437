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
#include "scouts.h"

enum {
	PLACES_MAX = 1 << 16,      /* differences kept apart */
};

enum state { AGREE, APART, REJOIN, ENDED };

/* What a side does while it is apart. */
struct excursion {
	struct departure at;
	bool passed;          /* the element it is at is done with: the next one is to be fetched */
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
	int64_t n_agreed;
	struct excursion out[2];
	int32_t kind;

	struct scouts scouts;

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
	error = side_init(&compare->sides[0], a, places_a, tree_a);
	if (!error)
		error = side_init(&compare->sides[1], b, places_b, tree_b);
	if (!error)
		error = scouts_init(&compare->scouts, freely);
	compare->n_slots = 2 * PLACES_MAX;
	compare->slots = calloc(compare->n_slots, sizeof(*compare->slots));
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
	for (int i = 0; i < 2; i++)
		side_deinit(&compare->sides[i]);
	scouts_deinit(&compare->scouts);
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
	scouts_begin(&compare->scouts);
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

	*out = (struct excursion){ .at = { *next, there, agreed->seq < 0 ? 0 : agreed->depth } };
	if (out->at.level == 0 || (there && next->gap))
		out->at.level = ANY_DEPTH;
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
		compare->out[0].at.level = compare->out[1].at.level = ANY_DEPTH;
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
	if (!out->at.there)
		return true;
	return compare->leaving ? out->at.next.depth < out->at.level : out->at.next.seq == out->sync;
}

/* Go to where it agrees again, or out of the frame. 1: there; 0: rows are used up. */
static int rejoin(struct ptm_compare *compare, int i)
{
	struct side *side = &compare->sides[i];
	struct excursion *out = &compare->out[i];

	for (;;) {
		if (out->passed) {
			const int found = side_next(side, &side->main, &out->at.next);

			if (found < 0)
				return found;
			if (!found && !side->last)
				return 0;
			out->at.there = found;
			out->passed = false;
		}
		if (is_back(compare, out))
			return 1;
		if (out->at.next.depth < out->at.level && out->at.level != ANY_DEPTH)
			out->at.level = out->at.next.depth;
		out->way.blocks++;
		out->way.instructions += side->program->blocks[out->at.next.block].instructions;
		if (out->at.next.depth == out->at.level + 1)
			count_call(side, &out->way, &out->at.next);
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
		compare->out[i].way.sync_seq = compare->out[i].at.there ? compare->out[i].at.next.seq : -1;
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

	if (compare->leaving && a->at.there && b->at.there && a->at.next.key != b->at.next.key) {
		a->at.level = a->at.next.depth;
		b->at.level = b->at.next.depth;
		compare->leaving = false;
		compare->state = APART;
		return 0;
	}
	error = record(compare);
	if (error)
		return error;
	if (!a->at.there || !b->at.there) {
		compare->state = ENDED;
		return 0;
	}
	compare->agreed[0] = a->at.next;
	compare->agreed[1] = b->at.next;
	compare->n_agreed++;
	compare->state = AGREE;
	return 0;
}

static int step_apart(struct ptm_compare *compare)
{
	const struct departure from[2] = { compare->out[0].at, compare->out[1].at };
	int64_t seqs[2];
	const int found = scouts_find(&compare->scouts, compare->sides, from, compare->kind == PTM_APART_GAP, seqs);

	if (found < 0)
		return found;
	for (int i = 0; i < 2; i++)
		compare->out[i].sync = seqs[i];
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
