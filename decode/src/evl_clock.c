/* SPDX-License-Identifier: MIT */
/* Vector clocks and objects; evl_clock.h says what is guaranteed. */
#include "evl_clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { GREATEST_WINDOW = 8192 };

struct evl_clock *evl_clock_retain(struct evl_clock *clock)
{
	if (clock)
		clock->references++;
	return clock;
}

void evl_clock_release(struct evl_clock *clock)
{
	if (clock && --clock->references == 0)
		free(clock);
}

static struct evl_clock *clock_create(uint32_t length)
{
	struct evl_clock *clock = malloc(sizeof *clock + length * sizeof clock->value[0]);
	if (clock) {
		clock->references = 1;
		clock->length = length;
	}
	return clock;
}

void evl_vector_deinit(struct evl_vector *vector)
{
	free(vector->value);
	*vector = (struct evl_vector){0};
}

static int vector_reach(struct evl_vector *vector, uint32_t length)
{
	if (length <= vector->length)
		return 0;
	if (length > vector->capacity) {
		uint32_t capacity = length + length / 2 + 4;
		uint32_t *value = realloc(vector->value, capacity * sizeof *value);
		if (!value)
			return -ENOMEM;
		vector->value = value;
		vector->capacity = capacity;
	}
	memset(vector->value + vector->length, 0, (length - vector->length) * sizeof *vector->value);
	vector->length = length;
	return 0;
}

int evl_vector_set(struct evl_vector *vector, uint32_t index, uint32_t value)
{
	int error = vector_reach(vector, index + 1);
	if (error == 0)
		vector->value[index] = value;
	return error;
}

int evl_vector_join(struct evl_vector *vector, const struct evl_clock *clock)
{
	if (!clock)
		return 0;
	int error = vector_reach(vector, clock->length);
	if (error)
		return error;
	for (uint32_t i = 0; i < clock->length; i++)
		if (clock->value[i] > vector->value[i])
			vector->value[i] = clock->value[i];
	return 0;
}

struct evl_clock *evl_vector_publish(const struct evl_vector *vector)
{
	struct evl_clock *clock = clock_create(vector->length);
	if (clock && vector->length)
		memcpy(clock->value, vector->value, vector->length * sizeof *vector->value);
	return clock;
}

static bool covers(const struct evl_clock *above, const struct evl_clock *below)
{
	for (uint32_t i = 0; i < below->length; i++)
		if (below->value[i] > (i < above->length ? above->value[i] : 0))
			return false;
	return true;
}

struct evl_clock *evl_clock_join(struct evl_clock *a, struct evl_clock *b)
{
	if (!a || !b)
		return evl_clock_retain(a ? a : b);
	if (covers(b, a))
		return evl_clock_retain(b);
	if (covers(a, b))
		return evl_clock_retain(a);
	struct evl_clock *clock = clock_create(a->length > b->length ? a->length : b->length);
	if (!clock)
		return NULL;
	for (uint32_t i = 0; i < clock->length; i++) {
		uint32_t left = i < a->length ? a->value[i] : 0, right = i < b->length ? b->value[i] : 0;
		clock->value[i] = left > right ? left : right;
	}
	return clock;
}

struct evl_object *evl_object_create(void)
{
	struct evl_object *object = calloc(1, sizeof *object);
	if (object) {
		object->window = 2;
		object->writer = object->waiting = -1;
	}
	return object;
}

static struct evl_moment *moment(const struct evl_object *object, uint32_t n)
{
	return &object->moments[(object->first + n) % object->capacity];
}

void evl_object_destroy(struct evl_object *object)
{
	if (!object)
		return;
	for (uint32_t i = 0; i < object->count; i++) {
		evl_clock_release(moment(object, i)->all);
		evl_clock_release(moment(object, i)->writes);
	}
	free(object->moments);
	free(object->members);
	free(object);
}

void evl_object_widen(struct evl_object *object, uint32_t window)
{
	if (window > GREATEST_WINDOW)
		window = GREATEST_WINDOW;
	if (window > object->window)
		object->window = window;
}

static int ring_grow(struct evl_object *object)
{
	uint32_t capacity = object->capacity ? object->capacity * 2 : 2;
	struct evl_moment *moments = malloc(capacity * sizeof *moments);
	if (!moments)
		return -ENOMEM;
	for (uint32_t i = 0; i < object->count; i++)
		moments[i] = *moment(object, i);
	free(object->moments);
	object->moments = moments;
	object->capacity = capacity;
	object->first = 0;
	return 0;
}

int evl_object_release(struct evl_object *object, uint64_t version, struct evl_clock *clock, bool write)
{
	struct evl_moment *last = object->count ? moment(object, object->count - 1) : NULL;
	if (last && version < last->version) /* it comes late: versions that follow were released already */
		version = last->version;
	struct evl_moment next = {version, last ? last->all : NULL, last ? last->writes : NULL};
	next.all = evl_clock_join(next.all, clock);
	next.writes = write ? evl_clock_join(next.writes, clock) : evl_clock_retain(next.writes);
	if (clock && (!next.all || (write && !next.writes)))
		return -ENOMEM;
	if (object->count >= object->window) {
		evl_clock_release(moment(object, 0)->all);
		evl_clock_release(moment(object, 0)->writes);
		object->first = (object->first + 1) % object->capacity;
		object->count--;
		object->evicted = true;
	} else if (object->count == object->capacity && ring_grow(object) < 0) {
		return -ENOMEM;
	}
	object->count++;
	*moment(object, object->count - 1) = next;
	if (version > object->done)
		object->done = version;
	return 0;
}

struct evl_clock *evl_object_acquire(const struct evl_object *object, uint64_t version, bool reader, bool *ret_exact)
{
	uint32_t low = 0, high = object->count; /* the first moment beyond `version` */
	*ret_exact = true;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (moment(object, middle)->version <= version)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0) {
		if (!object->evicted || object->count == 0)
			return NULL;
		*ret_exact = false;
		low = 1;
	}
	return reader ? moment(object, low - 1)->writes : moment(object, low - 1)->all;
}

int evl_object_arrive(struct evl_object *object, uint32_t thread, uint64_t count)
{
	for (uint32_t i = 0; i < object->member_count; i++)
		if (object->members[i] == thread)
			return 0;
	if (count == 0 || object->member_count >= count || object->member_count >= GREATEST_WINDOW) {
		object->overfull = true;
		return 0;
	}
	uint32_t *members = realloc(object->members, (object->member_count + 1) * sizeof *members);
	if (!members)
		return -ENOMEM;
	members[object->member_count++] = thread;
	object->members = members;
	return 0;
}

void evl_map_deinit(struct evl_map *map, void (*destroy)(void *))
{
	for (size_t i = 0; i < map->capacity; i++)
		if (map->entries[i].value)
			destroy(map->entries[i].value);
	free(map->entries);
	*map = (struct evl_map){0};
}

static struct evl_entry *place(const struct evl_map *map, uint64_t a, uint64_t b)
{
	uint64_t hash = (a * 0x9e3779b97f4a7c15ull ^ b) * 0xc2b2ae3d27d4eb4full;
	size_t at = (size_t)(hash ^ hash >> 32) & (map->capacity - 1);
	while (map->entries[at].value && (map->entries[at].a != a || map->entries[at].b != b))
		at = (at + 1) & (map->capacity - 1);
	return &map->entries[at];
}

static int map_grow(struct evl_map *map)
{
	struct evl_map bigger = {.capacity = map->capacity ? map->capacity * 2 : 64, .count = map->count};
	bigger.entries = calloc(bigger.capacity, sizeof *bigger.entries);
	if (!bigger.entries)
		return -ENOMEM;
	for (size_t i = 0; i < map->capacity; i++)
		if (map->entries[i].value)
			*place(&bigger, map->entries[i].a, map->entries[i].b) = map->entries[i];
	free(map->entries);
	*map = bigger;
	return 0;
}

void **evl_map_get(struct evl_map *map, uint64_t a, uint64_t b)
{
	if (map->count * 4 >= map->capacity * 3 && map_grow(map) < 0)
		return NULL;
	struct evl_entry *entry = place(map, a, b);
	if (!entry->value) {
		entry->a = a;
		entry->b = b;
		map->count++; /* the caller gives it a value now */
	}
	return &entry->value;
}
