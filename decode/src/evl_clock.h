/* SPDX-License-Identifier: MIT */
/*
 * Vector clocks and the objects that carry them from release to acquire.
 *
 * A clock has one component a thread (by index in the run), absent ones are 0. Published clocks are shared and
 * immutable. An object keeps the joins of its releases by version, as far back as acquires may still ask for:
 * exclusive objects need the last one only, others a window.
 *
 * Everything is owned by who created it; clocks are counted. Allocation failures are negative errno (or NULL).
 * Not thread-safe.
 */
#ifndef PTW_EVL_CLOCK_H
#define PTW_EVL_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- clocks --- */

struct evl_clock {
	uint32_t references;
	uint32_t length;
	uint32_t value[];
};

struct evl_clock *evl_clock_retain(struct evl_clock *clock);
void evl_clock_release(struct evl_clock *clock);

/* A thread's own clock, which changes. */
struct evl_vector {
	uint32_t *value;
	uint32_t length, capacity;
};

void evl_vector_deinit(struct evl_vector *vector);
int evl_vector_set(struct evl_vector *vector, uint32_t index, uint32_t value);
int evl_vector_join(struct evl_vector *vector, const struct evl_clock *clock);
struct evl_clock *evl_vector_publish(const struct evl_vector *vector);

/* The least clock above both (either may be NULL); shares one of them where it can. NULL without memory. */
struct evl_clock *evl_clock_join(struct evl_clock *a, struct evl_clock *b);

/* --- objects --- */

struct evl_moment {
	uint64_t version;
	struct evl_clock *all;    /* join of all releases up to this version */
	struct evl_clock *writes; /* join of those that readers acquire */
};

struct evl_object {
	uint64_t done; /* all releases up to this version are here, or known to be missing */
	struct evl_moment *moments; /* a ring, versions ascending */
	uint32_t first, count, capacity, window;
	bool evicted;
	int32_t writer; /* thread that holds it for writing; −1 none */
	uint32_t *members; /* threads that arrived at a barrier, as many as its count */
	uint32_t member_count;
	bool overfull;   /* more threads than its count use the barrier */
	int32_t waiting; /* first thread that waits for a release of it; −1 none */
};

struct evl_object *evl_object_create(void);
void evl_object_destroy(struct evl_object *object);

/* Keep at least `window` versions. */
void evl_object_widen(struct evl_object *object, uint32_t window);

/* A release made `version`; `clock` NULL: it failed, or carries nothing. Readers see it when `write`. */
int evl_object_release(struct evl_object *object, uint64_t version, struct evl_clock *clock, bool write);

/* What an acquire of `version` joins (NULL nothing). *ret_exact is false when that version is not kept any more and a
 * later one stands for it. */
struct evl_clock *evl_object_acquire(const struct evl_object *object, uint64_t version, bool reader,
				     bool *ret_exact);

/* A thread arrived at a barrier of `count`. */
int evl_object_arrive(struct evl_object *object, uint32_t thread, uint64_t count);

/* --- a map from two words to a pointer --- */

struct evl_map {
	struct evl_entry {
		uint64_t a, b;
		void *value;
	} *entries;
	size_t count, capacity;
};

void evl_map_deinit(struct evl_map *map, void (*destroy)(void *));

/* The place of (a, b)'s value, NULL in it when new; NULL without memory. Valid until the next call. */
void **evl_map_get(struct evl_map *map, uint64_t a, uint64_t b);

#endif
