/* SPDX-License-Identifier: MIT */
/*
 * The event vector: events with named, typed data, logged by many threads of many processes into shared memory.
 *
 *	static const struct ptv_field fields[] = {{"index", PTV_I64}, {"path", PTV_STRING}};
 *	static struct ptv_kind opened = PTV_KIND("opened", fields);
 *	static struct ptv_key reason = PTV_KEY("reason");
 *
 *	struct ptv_event event;
 *	ptv_begin(producer, &opened, &event);
 *	ptv_set_i64(&event, 0, 7);
 *	ptv_set_string(&event, 1, path, strlen(path));
 *	ptv_add_string(&event, &reason, "asked", 5);
 *	ptv_commit(&event);
 *
 * Each thread is a producer with lists of its own; a consumer takes lists that are full, and what is finished in the
 * others. A kind or key is declared when it is first used. An event may have any of its kind's fields, each once (the
 * last value holds), and any pairs; what makes it longer than PTV_EVENT_MAX is cut, and the event says so.
 *
 * Guarantees: no locks, no allocation, no library calls in begin, set, add and commit: signal handlers may log at any
 * moment, also in the midst of another event. A thread that ends, jumps away or is killed in the midst of an event
 * costs that event, never another. After a fork the child is a producer of its own; an event the fork interrupted is
 * the parent's alone. Without a free list, begin waits while the consumer is heard of; when it was not for
 * PTV_PATIENCE_NS, no new list is taken into use, and events are counted and dropped. A producer belongs to one
 * thread; events of one thread may overlap, up to PTV_LANES.
 *
 * Whoever called ptv_vector_init owns the memory and calls ptv_vector_deinit when no thread logs any more.
 */
#ifndef PTW_VECTOR_H
#define PTW_VECTOR_H

#include "vector_format.h"

#include <stdbool.h>
#include <stddef.h>

#ifndef PTV_PATIENCE_NS /* tests are less patient */
#define PTV_PATIENCE_NS 5000000000ull
#endif

struct ptv_field {
	const char *name;
	enum ptv_type type;
};

/* What an event can be; shared by all threads. `known` is a vector's number for it, with that vector's identity. */
struct ptv_kind {
	const char *name;
	const struct ptv_field *field;
	uint32_t fields;
	uint64_t known;
};

/* The key of a pair. */
struct ptv_key {
	const char *name;
	uint64_t known;
};

#define PTV_KIND(name_, fields_) {(name_), (fields_), sizeof(fields_) / sizeof *(fields_), 0}
#define PTV_KEY(name_) {(name_), 0}

#define PTV_NEVER 0xffffffffu

/* A process's end of a vector. */
struct ptv_vector {
	struct ptv_head *head;
	struct ptv_list *lists;
	unsigned char *data;
	uint32_t *live; /* a page that forks wipe: the process's epoch */
	uint64_t bytes;
	uint32_t list_size, list_count, identity;
	uint32_t epoch; /* of this process, the last *live had */
	unsigned char touched[PTV_LIST_COUNT_MAX]; /* lists that keep their pages, and this process has mapped all of them */
};

/* One thread's lists, of which it uses the first unless its events overlap. */
struct ptv_lane {
	uint32_t busy;
	uint32_t generation; /* counts events begun: tells a stale one */
	struct ptv_list *list; /* NULL: none */
	unsigned char *data;
	uint64_t done;        /* bytes finished in this list, and events in them << 32 */
	uint64_t begun, lost; /* events in this list */
	uint32_t limit;       /* bytes of the list that may be used before prepare() is asked */
	uint64_t carried;     /* 1: its first event was begun in the list before */
	uint64_t sequence;    /* of the next list */
	uintptr_t frame;      /* stack address of who began the event under way */
};

struct ptv_producer {
	struct ptv_vector *vector;
	uint32_t epoch; /* PTV_NEVER: not a producer yet */
	uint32_t serial;
	uint32_t pid, tid;
	uint64_t freed_seen, heard_seen; /* when the consumer was given up */
	uint32_t dropping;
	struct ptv_lane lane[2][PTV_LANES]; /* by epoch: what a fork interrupted goes on in lanes that nobody uses */
};

/* An event under way; `record` is NULL when it was dropped, and everything done with it does nothing. */
struct ptv_event {
	struct ptv_record *record;
	struct ptv_producer *producer;
	struct ptv_lane *lane;
	const uint32_t *live;
	uint32_t epoch;
	uint32_t fields;
	uint32_t generation;
	uint32_t end; /* of the event so far, from its beginning */
};

/* Make a vector of `list_count` lists of `list_size` bytes in a new memfd: sealed in its size, close-on-exec. Lists cost
 * memory from their first use on. Returns the descriptor, or negative errno. */
int ptv_vector_init(struct ptv_vector *vector, uint32_t list_count, uint32_t list_size);

/* Map the vector in `fd`, made by another process. 0, or negative errno (-EINVAL: it is none). */
int ptv_vector_attach(struct ptv_vector *vector, int fd);

void ptv_vector_deinit(struct ptv_vector *vector);

/* In a fork child that has one thread: become a producer of one's own, now rather than with the first event. Call it
 * from a fork handler (pthread_atfork) where signal handlers fork: what they interrupted is then harmless, too. */
void ptv_vector_forked(struct ptv_vector *vector);

/* In a fork child that has one thread: go on in a new vector, which takes the old one's place here. Its descriptor, or
 * negative errno: nothing more is logged. */
int ptv_vector_replace(struct ptv_vector *vector);

/* In a child that was forked between two events, with the memory where it was: become a producer of one's own. */
void ptv_vector_resume(struct ptv_vector *vector);

/* The calling thread's end. It takes a list with its first event. */
void ptv_producer_init(struct ptv_producer *producer, struct ptv_vector *vector);

/* Hand the lists over: nothing else is logged by this thread. Events under way are given up. */
void ptv_producer_deinit(struct ptv_producer *producer);

/* Begin an event. 0, or negative errno: it was counted and dropped. */
int ptv_begin(struct ptv_producer *producer, struct ptv_kind *kind, struct ptv_event *ret);

/* Count an event that is not begun for a reason of the caller's. */
void ptv_count_drop(const struct ptv_vector *vector, enum ptv_drop why);

/* Add what does not fit into a word. `size` is in bytes. */
void ptv_set_data(struct ptv_event *event, uint32_t field, const void *data, size_t size);
void ptv_add(struct ptv_event *event, struct ptv_key *key, enum ptv_type type, uint64_t number, const void *data);

/* The event is there. 0, or negative errno: it had been dropped. */
int ptv_commit(struct ptv_event *event);

/* The event is not to be: it counts as lost. */
void ptv_cancel(struct ptv_event *event);

/* Not after a fork that came in the midst of the event (the record is the parent's), nor when it was given up. */
static inline bool ptv_usable(const struct ptv_event *event)
{
	return event->record && __atomic_load_n(event->live, __ATOMIC_RELAXED) == event->epoch &&
	       event->lane->generation == event->generation;
}

static inline void ptv_set_u64(struct ptv_event *event, uint32_t field, uint64_t value)
{
	if (__builtin_expect(ptv_usable(event) && field < event->fields, 1)) {
		event->record->field[field] = value;
		event->record->present |= 1u << field;
	}
}

static inline void ptv_set_i64(struct ptv_event *event, uint32_t field, int64_t value)
{
	ptv_set_u64(event, field, (uint64_t)value);
}

static inline void ptv_set_f64(struct ptv_event *event, uint32_t field, double value)
{
	uint64_t bits;
	__builtin_memcpy(&bits, &value, sizeof bits);
	ptv_set_u64(event, field, bits);
}

static inline void ptv_set_string(struct ptv_event *event, uint32_t field, const char *text, size_t length)
{
	ptv_set_data(event, field, text, length);
}

static inline void ptv_set_words(struct ptv_event *event, uint32_t field, const uint64_t *word, size_t count)
{
	ptv_set_data(event, field, word, count * sizeof *word);
}

static inline void ptv_add_u64(struct ptv_event *event, struct ptv_key *key, uint64_t value)
{
	ptv_add(event, key, PTV_U64, value, NULL);
}

static inline void ptv_add_i64(struct ptv_event *event, struct ptv_key *key, int64_t value)
{
	ptv_add(event, key, PTV_I64, (uint64_t)value, NULL);
}

static inline void ptv_add_f64(struct ptv_event *event, struct ptv_key *key, double value)
{
	uint64_t bits;
	__builtin_memcpy(&bits, &value, sizeof bits);
	ptv_add(event, key, PTV_F64, bits, NULL);
}

static inline void ptv_add_string(struct ptv_event *event, struct ptv_key *key, const char *text, size_t length)
{
	ptv_add(event, key, PTV_STRING, length, text);
}

#endif
