/* SPDX-License-Identifier: MIT */
/*
 * The decoder: which record comes next, what it joins, what it publishes. evl.h says what is guaranteed.
 *
 * Each thread offers its next record. A record is ready when everything that its operation waited for is decoded: an
 * acquire of version v, all releases of the object up to v; a start, the create or fork with its serial; a join, the
 * whole of the other thread. Ready threads wait in a heap by time, the others in a second one and in the list of the
 * object (or life) that will make them ready.
 */
#define _GNU_SOURCE
#include "evl.h"

#include "evl_clock.h"
#include "evl_file.h"
#include "evl_heap.h"
#include "evl_operation.h"
#include "evl_rows.h"
#include "evl_time.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	BATCH_BYTES = 64 << 20,      /* rows held back, over all threads */
	GREATEST_BATCH = 1 << 20,
	NOBODY = -1,
	LIFE = 1, /* kinds of keys in `lives`: (image, serial) of a thread, */
	BIRTH = 2, /* (tid, serial) of a fork; */
	CUT = 3,   /* (image, 0): its threads that were cut short */
};

/* A thread from its create (or a process from its fork) to its end. */
struct life {
	struct evl_clock *birth; /* published by its creator */
	struct evl_clock *death; /* its last clock */
	int32_t waiting;
	uint32_t cut;
};

enum state { READY, STALLED, ENDED };

struct thread {
	int32_t number;
	uint32_t index;
	enum state state;
	struct evl_file file;
	struct evl_section section;
	struct evl_record record;
	uint64_t key;
	struct evl_vector clock;
	struct evl_rows rows;
	struct evl_object *arrived; /* at this barrier, not yet out of it */
	uint64_t arrival;           /* the version that made */
	struct life *life;
	int32_t *queue;       /* the list it waits in */
	int32_t next_waiting;
	int32_t thunks;
	bool begun;  /* a section was read */
	bool exited; /* its last record in this image is its exit */
	uint32_t stamp; /* entries of the heaps with another one are old */
};

struct evl_decoder {
	struct evl_clocks clocks;
	uint64_t slack;
	struct thread *threads;
	int32_t *numbers;
	uint32_t count, capacity;
	struct evl_heap ready, stalled;
	struct evl_map objects, lives;
	uint64_t batch_bytes;
	uint64_t rows, missing, inexact;
	int32_t emptied; /* thread whose batch was handed out */
	uint32_t flushing;
	int started;
};

/* The earliest thread of a heap, or NULL; old entries go. */
static struct thread *earliest(struct evl_decoder *d, struct evl_heap *heap)
{
	while (heap->count) {
		struct thread *thread = &d->threads[heap->dues[0].thread];
		if (thread->stamp == heap->dues[0].stamp)
			return thread;
		evl_heap_pop(heap);
	}
	return NULL;
}

/* --- objects and lives --------------------------------------------------------------------------------------------- */

static struct evl_object *object_of(struct evl_decoder *d, const struct thread *t, const struct evl_record *r)
{
	struct evl_object **place = (struct evl_object **)evl_map_get(&d->objects, t->section.image, r->object);
	if (!place)
		return NULL;
	if (!*place)
		*place = evl_object_create();
	if (*place)
		evl_object_widen(*place, evl_window_of(r));
	return *place;
}

static struct life *life_of(struct evl_decoder *d, uint64_t kind, uint64_t whose, uint64_t serial)
{
	struct life **place = (struct life **)evl_map_get(&d->lives, kind << 32 | whose, serial);
	if (place && !*place) {
		*place = calloc(1, sizeof **place);
		if (*place)
			(*place)->waiting = NOBODY;
	}
	return place ? *place : NULL;
}

static struct life *life_for(struct evl_decoder *d, const struct thread *t, const struct evl_record *r)
{
	if (r->operation == EVL_OP_FORK)
		return life_of(d, BIRTH, t->section.tid, r->version);
	if (r->operation == EVL_OP_START && r->object == 0)
		return life_of(d, BIRTH, (uint32_t)r->argument, r->version);
	return life_of(d, LIFE, t->section.image, r->version);
}

static void life_destroy(void *pointer)
{
	struct life *life = pointer;
	evl_clock_release(life->birth);
	evl_clock_release(life->death);
	free(life);
}

static void object_destroy(void *object) { evl_object_destroy(object); }

/* --- who may go -------------------------------------------------------------------------------------------------- */

/* The version an acquire joins up to: a barrier's ends its generation, when no more threads than its count use it. */
static uint64_t wanted_version(const struct thread *t, const struct evl_object *object, const struct evl_record *r)
{
	uint64_t count = EVL_BARRIER_COUNT(r->argument);
	if (r->operation != EVL_OP_BARRIER_WAIT || count == 0 || t->arrived != object || t->arrival == 0 || object->overfull)
		return r->version;
	uint64_t end = ((t->arrival - 1) / count + 1) * count;
	return end < r->version ? end : r->version;
}

/* What the thread's record waits for: *ret_queue is where to be woken, NULL when it is ready. */
static int awaits(struct evl_decoder *d, struct thread *t, int32_t **ret_queue)
{
	const struct evl_record *r = &t->record;
	bool release = evl_makes_version(r->operation);
	*ret_queue = NULL;
	if (r->version == 0 || (!release && !evl_is_acquire(r)))
		return 0;
	if (evl_names_thread(r->operation)) {
		struct life *life = life_for(d, t, r);
		if (!life)
			return -ENOMEM;
		if (r->operation == EVL_OP_START ? !life->birth : r->operation == EVL_OP_JOIN && !life->death)
			*ret_queue = &life->waiting;
		return 0;
	}
	struct evl_object *object = object_of(d, t, r);
	if (!object)
		return -ENOMEM;
	if (object->done < (release ? r->version - 1 : wanted_version(t, object, r)))
		*ret_queue = &object->waiting;
	return 0;
}

static int offer(struct evl_decoder *d, struct thread *t)
{
	int32_t *queue = NULL;
	int error = awaits(d, t, &queue);
	if (error)
		return error;
	t->stamp++;
	t->queue = queue;
	if (queue) {
		t->state = STALLED;
		t->next_waiting = *queue;
		*queue = (int32_t)t->index;
	} else {
		t->state = READY;
	}
	return evl_heap_push(queue ? &d->stalled : &d->ready, (struct evl_due){t->key, t->index, t->stamp});
}

static int wake(struct evl_decoder *d, int32_t *queue)
{
	int32_t waiting = *queue;
	*queue = NOBODY;
	while (waiting != NOBODY) {
		struct thread *t = &d->threads[waiting];
		waiting = t->next_waiting;
		int error = offer(d, t);
		if (error)
			return error;
	}
	return 0;
}

static void leave_queue(struct evl_decoder *d, struct thread *t)
{
	int32_t *at = t->queue;
	while (at && *at != NOBODY) {
		if (*at == (int32_t)t->index) {
			*at = t->next_waiting;
			break;
		}
		at = &d->threads[*at].next_waiting;
	}
	t->queue = NULL;
}

/* --- reading ----------------------------------------------------------------------------------------------------- */

/* The thread's life in its image is over: who joins it may go on. */
static int end_life(struct evl_decoder *d, struct thread *t)
{
	struct life *life = t->life, *cut;
	t->life = NULL;
	t->arrived = NULL;
	if (!t->exited) {
		if (!(cut = life_of(d, CUT, t->section.image, 0)))
			return -ENOMEM;
		cut->cut++;
	}
	if (!life || life->death)
		return 0;
	life->death = evl_vector_publish(&t->clock);
	return life->death ? wake(d, &life->waiting) : -ENOMEM;
}

/* Read the thread's next record and offer it. */
static int advance(struct evl_decoder *d, struct thread *t)
{
	for (;;) {
		struct evl_section section;
		int item = evl_file_next(&t->file, &section, &t->record);
		if (item < 0)
			return item;
		if (item == EVL_IS_SECTION || item == EVL_END) {
			int error = t->begun ? end_life(d, t) : 0;
			if (error)
				return error;
			t->begun = true;
			t->exited = false;
			if (item == EVL_IS_SECTION)
				t->section = section;
		}
		if (item == EVL_END) {
			t->state = ENDED;
			t->stamp++;
			return 0;
		}
		if (item == EVL_IS_RECORD)
			break;
	}
	t->exited = t->record.operation == EVL_OP_EXIT;
	uint64_t key = evl_is_release(&t->record) ? t->record.enter : t->record.leave;
	if (key > t->key)
		t->key = key;
	return offer(d, t);
}

/* --- decoding one record ------------------------------------------------------------------------------------------ */

/* Releases up to `version` are not in the lists. The end of a process cuts its other threads short: each may have made
 * one release that it did not come to log, and those are not missing. */
static int note_gap(struct evl_decoder *d, const struct thread *t, const struct evl_object *object, uint64_t version)
{
	struct life *cut = life_of(d, CUT, t->section.image, 0);
	if (!cut)
		return -ENOMEM;
	uint64_t gap = version - object->done;
	if (gap > cut->cut)
		d->missing++;
	else
		cut->cut -= (uint32_t)gap;
	return 0;
}

static int join(struct evl_decoder *d, struct thread *t, const struct evl_record *r)
{
	if (r->version == 0)
		return 0;
	if (evl_names_thread(r->operation)) {
		struct life *life = life_for(d, t, r);
		if (!life)
			return -ENOMEM;
		struct evl_clock *clock = r->operation == EVL_OP_START ? life->birth : life->death;
		if (!clock)
			d->missing++;
		if (r->operation == EVL_OP_START && r->object != 0)
			t->life = life;
		return evl_vector_join(&t->clock, clock);
	}
	struct evl_object *object = object_of(d, t, r);
	if (!object)
		return -ENOMEM;
	uint64_t version = wanted_version(t, object, r);
	bool exact;
	struct evl_clock *clock = evl_object_acquire(object, version, evl_reads(r->operation), &exact);
	if (version > object->done) {
		int error = note_gap(d, t, object, version);
		if (error)
			return error;
		object->done = version;
	}
	d->inexact += !exact;
	if (evl_writes(r->operation))
		object->writer = (int32_t)t->index;
	if (r->operation == EVL_OP_BARRIER_WAIT)
		t->arrived = NULL;
	return evl_vector_join(&t->clock, clock);
}

static int publish_life(struct evl_decoder *d, struct thread *t, const struct evl_record *r)
{
	if (r->operation == EVL_OP_EXIT || r->version == 0)
		return 0;
	struct life *life = life_for(d, t, r);
	if (!life)
		return -ENOMEM;
	evl_clock_release(life->birth); /* a fork's key comes again when tids do */
	life->birth = evl_vector_publish(&t->clock);
	return life->birth ? wake(d, &life->waiting) : -ENOMEM;
}

static int publish(struct evl_decoder *d, struct thread *t, const struct evl_record *r)
{
	if (evl_names_thread(r->operation))
		return publish_life(d, t, r);
	struct evl_object *object = object_of(d, t, r);
	if (!object)
		return -ENOMEM;
	if (r->version == 0)
		return 0;
	bool write = true;
	int error = r->version > object->done + 1 ? note_gap(d, t, object, r->version - 1) : 0;
	if (error)
		return error;
	if (r->operation == EVL_OP_RWUNLOCK) {
		write = object->writer == (int32_t)t->index;
		if (write)
			object->writer = NOBODY;
	}
	if (r->operation == EVL_OP_BARRIER_ARRIVE) {
		error = evl_object_arrive(object, t->index, EVL_BARRIER_COUNT(r->argument));
		t->arrived = object;
		t->arrival = r->version;
	}
	struct evl_clock *clock = evl_is_release(r) ? evl_vector_publish(&t->clock) : NULL;
	if (error || (evl_is_release(r) && !clock)) {
		evl_clock_release(clock);
		return -ENOMEM;
	}
	error = evl_object_release(object, r->version, clock, write);
	evl_clock_release(clock);
	return error ? error : wake(d, &object->waiting);
}

static int decode(struct evl_decoder *d, struct thread *t)
{
	const struct evl_record *r = &t->record;
	bool acquire = evl_is_acquire(r), release = evl_is_release(r);
	int error = 0;
	if (acquire)
		error = join(d, t, r);
	if (!error && (release || evl_makes_version(r->operation)))
		error = publish(d, t, r);
	if (!error)
		error = evl_vector_set(&t->clock, t->index, (uint32_t)t->thunks + 1);
	if (error)
		return error;
	int64_t enter = evl_to_ns(&d->clocks, r->enter);
	struct evl_row row = {
		.thunk = t->thunks++,
		.operation = r->operation,
		.flags = (uint8_t)((acquire ? EVL_ACQUIRE : 0) | (release ? EVL_RELEASE : 0)),
		.object = r->object,
		.result = r->result,
		.t = enter,
		.wait = r->leave > r->enter ? (int64_t)((uint64_t)evl_to_ns(&d->clocks, r->leave) - (uint64_t)enter) : 0,
		.tsc = r->enter,
		.marker = t->section.marker,
	};
	d->rows++;
	return evl_rows_add(&t->rows, &row, &t->clock, d->numbers, r->stack, r->frames);
}

/* --- the public functions ------------------------------------------------------------------------------------------ */

struct evl_decoder *evl_decoder_create(const struct evl_clocks *clocks, uint64_t slack)
{
	struct evl_decoder *d = calloc(1, sizeof *d);
	if (d) {
		d->clocks = *clocks;
		d->slack = slack;
		d->emptied = NOBODY;
	}
	return d;
}

void evl_decoder_destroy(struct evl_decoder *d)
{
	if (!d)
		return;
	for (uint32_t i = 0; i < d->count; i++) {
		evl_file_deinit(&d->threads[i].file);
		evl_vector_deinit(&d->threads[i].clock);
		evl_rows_deinit(&d->threads[i].rows);
	}
	evl_map_deinit(&d->objects, object_destroy);
	evl_map_deinit(&d->lives, life_destroy);
	evl_heap_deinit(&d->ready);
	evl_heap_deinit(&d->stalled);
	free(d->threads);
	free(d->numbers);
	free(d);
}

int evl_decoder_add(struct evl_decoder *d, const char *path, int32_t thread)
{
	if (d->started || thread < 0 || (d->count && thread <= d->numbers[d->count - 1]))
		return -EINVAL;
	if (d->count == d->capacity) {
		uint32_t capacity = d->capacity ? d->capacity * 2 : 16;
		struct thread *threads = realloc(d->threads, capacity * sizeof *threads);
		if (!threads)
			return -ENOMEM;
		d->threads = threads;
		int32_t *numbers = realloc(d->numbers, capacity * sizeof *numbers);
		if (!numbers)
			return -ENOMEM;
		d->numbers = numbers;
		d->capacity = capacity;
	}
	struct thread *t = &d->threads[d->count];
	*t = (struct thread){.number = thread, .index = d->count, .next_waiting = NOBODY};
	int error = evl_file_init(&t->file, path);
	if (error) {
		evl_file_deinit(&t->file);
		return error;
	}
	d->numbers[d->count++] = thread;
	return 0;
}

static int start(struct evl_decoder *d)
{
	d->started = 1;
	d->batch_bytes = BATCH_BYTES / (d->count ? d->count : 1);
	if (d->batch_bytes > GREATEST_BATCH)
		d->batch_bytes = GREATEST_BATCH;
	for (uint32_t i = 0; i < d->count; i++) {
		int error = advance(d, &d->threads[i]);
		if (error)
			return error;
	}
	return 0;
}

/* Who goes next: the earliest that is ready, unless one that waits for something was due long before. */
static struct thread *choose(struct evl_decoder *d)
{
	struct thread *ready = earliest(d, &d->ready), *stalled = earliest(d, &d->stalled);
	if (stalled && (!ready || (ready->key > stalled->key && ready->key - stalled->key > d->slack)))
		return stalled;
	return ready;
}

int evl_decoder_next(struct evl_decoder *d, struct evl_batch *ret)
{
	if (d->emptied != NOBODY)
		evl_rows_clear(&d->threads[d->emptied].rows);
	d->emptied = NOBODY;
	int error = d->started ? 0 : start(d);
	struct thread *t;
	while (!error && (t = choose(d))) {
		evl_heap_pop(t->state == STALLED ? &d->stalled : &d->ready);
		leave_queue(d, t);
		error = decode(d, t);
		bool full = evl_rows_bytes(&t->rows) >= d->batch_bytes;
		if (full) {
			evl_rows_batch(&t->rows, t->number, ret);
			d->emptied = (int32_t)t->index;
		}
		if (!error)
			error = advance(d, t);
		if (!error && full)
			return 1;
	}
	while (!error && d->flushing < d->count) {
		t = &d->threads[d->flushing++];
		if (t->rows.rows) {
			evl_rows_batch(&t->rows, t->number, ret);
			d->emptied = (int32_t)t->index;
			return 1;
		}
	}
	return error;
}

static void add(struct evl_counts *counts, const struct evl_file *file)
{
	counts->unfinished += file->unfinished;
	counts->corrupt += file->corrupt;
	counts->unread += file->unread;
	counts->lost += file->lost;
	counts->accesses += file->accesses;
}

void evl_decoder_counts(const struct evl_decoder *d, struct evl_counts *ret)
{
	*ret = (struct evl_counts){.rows = d->rows, .missing = d->missing, .inexact = d->inexact};
	for (uint32_t i = 0; i < d->count; i++)
		add(ret, &d->threads[i].file);
}

void evl_decoder_thread_counts(const struct evl_decoder *d, uint32_t index, struct evl_counts *ret)
{
	*ret = (struct evl_counts){.rows = (uint64_t)d->threads[index].thunks};
	add(ret, &d->threads[index].file);
}
