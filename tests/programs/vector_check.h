/* SPDX-License-Identifier: MIT */
/*
 * Events that can be checked: their text follows from producer and index, so one bit wrong anywhere shows. A sink that
 * checks every event of every chunk, on its own reading of the format.
 */
#ifndef PTW_VECTOR_CHECK_H
#define PTW_VECTOR_CHECK_H

#include "vector.h"
#include "vector_consumer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ptv_field check_fields[] = {
	{"who", PTV_U64}, {"index", PTV_U64}, {"text", PTV_STRING}, {"product", PTV_U64}};
static struct ptv_kind checked = PTV_KIND("checked", check_fields);
static struct ptv_key check_key = PTV_KEY("extra");

enum { CHECK_TEXT = 4096, CHECK_PRODUCERS = 4096 };

/* Lengths of all sizes, most of them small. */
static inline size_t check_length(uint64_t who, uint64_t index)
{
	uint64_t mixed = (who * 0x9e3779b97f4a7c15ull) ^ (index * 0xbf58476d1ce4e5b9ull);
	mixed ^= mixed >> 29;
	return mixed % 1000 == 0 ? mixed / 1000 % CHECK_TEXT : mixed % 24;
}

static inline void check_fill(char *text, size_t length, uint64_t who, uint64_t index)
{
	for (size_t i = 0; i < length; i++)
		text[i] = (char)('a' + (who + index + i) % 26);
}

static inline int check_log_key(struct ptv_producer *producer, uint64_t who, uint64_t index, struct ptv_key *key)
{
	struct ptv_event event;
	char text[CHECK_TEXT];
	size_t length = check_length(who, index);
	check_fill(text, length, who, index);
	ptv_begin(producer, &checked, &event);
	ptv_set_u64(&event, 0, who);
	ptv_set_u64(&event, 1, index);
	ptv_set_string(&event, 2, text, length);
	if (index % 7 == 0)
		ptv_add_u64(&event, key, who ^ index);
	ptv_set_u64(&event, 3, who * 31 + index * 17 + length);
	return ptv_commit(&event);
}

static inline int check_log(struct ptv_producer *producer, uint64_t who, uint64_t index)
{
	return check_log_key(producer, who, index, &check_key);
}

/* What came of one `who`. */
struct check_who {
	uint64_t count;
	uint64_t sum, squares, highest; /* of the indices */
};

/* How far a lane of a producer has come: what is behind the bytes `end` of list `sequence` comes next. */
struct check_place {
	uint64_t sequence;
	uint32_t end;
};

struct check {
	struct check_who *who;
	struct check_place (*place)[PTV_LANES]; /* of the first CHECK_PRODUCERS */
	uint64_t whos;
	uint32_t zero_is; /* 0, or the process whose events of who 0 are tallied */
	uint32_t pid;     /* of the chunk at hand */
	uint64_t events, errors, bytes;
	unsigned char names[PTV_KINDS + PTV_KEYS];
	char first_error[200];
};

static inline void check_error(struct check *check, const char *what, uint64_t who, uint64_t index)
{
	if (check->errors++ == 0)
		snprintf(check->first_error, sizeof check->first_error, "%s: who %llu index %llu", what,
			 (unsigned long long)who, (unsigned long long)index);
}

static inline void check_event(struct check *check, const struct ptv_record *record)
{
	const unsigned char *base = (const unsigned char *)record;
	uint64_t who = record->field[0], index = record->field[1];
	uint32_t offset = (uint32_t)record->field[2], length = (uint32_t)(record->field[2] >> 32);
	char text[CHECK_TEXT];
	check->events++;
	if (record->kind >= PTV_KINDS || !check->names[record->kind] || record->present != 15 || record->flags != 0 ||
	    offset < sizeof *record + 32 || (uint64_t)offset + length > record->size)
		return check_error(check, "fields", who, index);
	if (length != check_length(who, index) || record->field[3] != who * 31 + index * 17 + length)
		return check_error(check, "numbers", who, index);
	check_fill(text, length, who, index);
	if (memcmp(base + offset, text, length) != 0)
		return check_error(check, "text", who, index);
	if ((index % 7 == 0) != (record->pairs != 0))
		return check_error(check, "pairs", who, index);
	if (record->pairs) {
		const struct ptv_pair *pair = (const struct ptv_pair *)(base + record->pairs);
		if (record->pairs + sizeof *pair > record->size || pair->before != 0 || pair->value != (who ^ index))
			return check_error(check, "pair", who, index);
		if (pair->key != PTV_KEY_INLINE && !check->names[PTV_KINDS + pair->key])
			return check_error(check, "key", who, index);
	}
	if (who >= check->whos)
		return check_error(check, "who", who, index);
	if (who == 0 && check->zero_is && check->pid != check->zero_is)
		return;
	struct check_who *one = &check->who[who];
	one->count++;
	one->sum += index;
	one->squares += index * index;
	one->highest = index > one->highest ? index : one->highest;
}

/* Each index from 0 up to the highest came once: two power sums say so, modulo 2^64. */
static inline bool check_is_whole(const struct check_who *one)
{
	uint64_t sum = 0, squares = 0;
	for (uint64_t i = 0; i < one->count; i++) {
		sum += i;
		squares += i * i;
	}
	return one->sum == sum && one->squares == squares && (one->count == 0 || one->highest == one->count - 1);
}

static inline int check_name(void *self, uint32_t index, const void *entry)
{
	struct check *check = self;
	(void)entry;
	check->names[index] = 1;
	return 0;
}

/* A lane's lists come in the order they were written in, each from its begin on. */
static inline void check_order(struct check *check, const struct ptv_chunk *chunk)
{
	if (chunk->producer >= CHECK_PRODUCERS || chunk->lane >= PTV_LANES || chunk->bytes == 0)
		return;
	struct check_place *place = &check->place[chunk->producer][chunk->lane];
	if (chunk->sequence < place->sequence ||
	    chunk->offset != (chunk->sequence == place->sequence ? place->end : 0))
		check_error(check, "order", chunk->producer, chunk->sequence);
	*place = (struct check_place){chunk->sequence, chunk->offset + chunk->bytes};
}

static inline int check_chunk(void *self, uint32_t list, const struct ptv_chunk *chunk, const unsigned char *data,
			      bool last)
{
	struct check *check = self;
	uint32_t at = 0, events = 0;
	(void)list, (void)last;
	check->pid = chunk->pid;
	if (chunk->pid == 0 || chunk->tid == 0 || chunk->producer == 0)
		check_error(check, "owner", chunk->producer, chunk->pid);
	check_order(check, chunk);
	while (at < chunk->bytes) {
		const struct ptv_record *record = (const struct ptv_record *)(data + at);
		if (record->size < sizeof *record || record->size % 8 || record->size > chunk->bytes - at) {
			check_error(check, "size", chunk->producer, at);
			return 0;
		}
		check_event(check, record);
		at += record->size;
		events++;
	}
	if (events != chunk->events)
		check_error(check, "count", chunk->producer, events);
	check->bytes += chunk->bytes;
	return 0;
}

static inline int check_save(void *self, const struct ptv_totals *totals, bool closed)
{
	(void)self, (void)totals, (void)closed;
	return 0;
}

static inline struct check *check_create(uint64_t whos)
{
	struct check *check = calloc(1, sizeof *check);
	if (!check || !(check->who = calloc(whos, sizeof *check->who)) ||
	    !(check->place = calloc(CHECK_PRODUCERS, sizeof *check->place)))
		abort();
	check->whos = whos;
	return check;
}

static inline void check_destroy(struct check *check)
{
	free(check->who);
	free(check->place);
	free(check);
}

static inline struct ptv_sink check_sink(struct check *check)
{
	return (struct ptv_sink){check, check_name, check_chunk, check_save};
}

#endif
