/* SPDX-License-Identifier: MIT */
/* The decoder: reading the lists, and handing out what they come to. evl.h says what is guaranteed. */
#define _GNU_SOURCE
#include "evl.h"

#include "evl_inner.h"
#include "evl_time.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	BATCH_BYTES = 64 << 20, /* rows held back, over all threads */
	GREATEST_BATCH = 1 << 20,
};

/* --- reading ----------------------------------------------------------------------------------------------------- */

/* The thread's life in its image is over: who joins it may go on. */
static int end_life(struct evl_decoder *d, struct thread *t)
{
	struct life *life = t->life, *cut;
	t->life = NULL;
	t->arrived = NULL;
	if (!t->exited) {
		if (!(cut = evl_life_of(d, CUT, t->section.image, 0)))
			return -ENOMEM;
		cut->cut++;
	}
	if (!life || life->death)
		return 0;
	life->death = evl_vector_publish(&t->clock);
	return life->death ? evl_wake(d, &life->waiting) : -ENOMEM;
}

static int32_t current_thunk(const struct thread *t) { return t->thunks ? t->thunks - 1 : 0; }

/* A section ended: what was open is not any more, and other things may lie at these addresses. */
static int end_section(struct evl_decoder *d, struct thread *t)
{
	int error = evl_pages_end(&t->pages, current_thunk(t));
	return error ? error : end_life(d, t);
}

static int take_access(struct evl_decoder *d, struct thread *t)
{
	if (!evl_pages_valid(&t->record)) {
		t->file.corrupt++;
		return 0;
	}
	d->accesses++;
	return evl_pages_take(&t->pages, &t->record, current_thunk(t), evl_to_ns(&d->clocks, t->record.enter));
}

/* Read on to the thread's next thunk and offer it: 1. 0: its accesses must be fetched before. */
static int advance(struct evl_decoder *d, struct thread *t)
{
	for (;;) {
		struct evl_section section;
		if (evl_pages_bytes(&t->pages) >= d->batch_bytes)
			return 0;
		int item = evl_file_next(&t->file, &section, &t->record), error = 0;
		if (item < 0)
			return item;
		if (item == EVL_IS_ACCESS)
			error = take_access(d, t);
		if (item == EVL_IS_SECTION || item == EVL_END) {
			error = t->begun ? end_section(d, t) : 0;
			t->begun = true;
			t->exited = false;
			if (item == EVL_IS_SECTION)
				t->section = section;
		}
		if (error)
			return error;
		if (item == EVL_END) {
			t->state = ENDED;
			t->stamp++;
			return 1;
		}
		if (item == EVL_IS_RECORD)
			break;
	}
	t->exited = t->record.operation == EVL_OP_EXIT;
	uint64_t key = evl_is_release(&t->record) ? t->record.enter : t->record.leave;
	if (key > t->key)
		t->key = key;
	t->latest = t->record.leave > t->key ? t->record.leave : t->key;
	int error = evl_offer(d, t);
	return error ? error : 1;
}

/* --- the public functions ------------------------------------------------------------------------------------------ */

static void life_destroy(void *pointer)
{
	struct life *life = pointer;
	evl_clock_release(life->birth);
	evl_clock_release(life->death);
	free(life);
}

static void object_destroy(void *object) { evl_object_destroy(object); }

struct evl_decoder *evl_decoder_create(const struct evl_clocks *clocks, uint64_t slack)
{
	struct evl_decoder *d = calloc(1, sizeof *d);
	if (d) {
		d->clocks = *clocks;
		d->slack = slack;
		d->emptied = d->given = d->reading = NOBODY;
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
		evl_pages_deinit(&d->threads[i].pages);
	}
	evl_map_deinit(&d->objects, object_destroy);
	evl_map_deinit(&d->lives, life_destroy);
	evl_stacks_deinit(&d->stacks);
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

static void start(struct evl_decoder *d)
{
	d->started = true;
	d->batch_bytes = BATCH_BYTES / (d->count ? d->count : 1);
	if (d->batch_bytes > GREATEST_BATCH)
		d->batch_bytes = GREATEST_BATCH;
	d->reading = d->count ? 0 : NOBODY;
	d->unread = 1;
}

/* Memory beyond a thread's share is given back: it is another's turn. */
static void empty(struct evl_decoder *d, struct evl_rows *rows)
{
	uint64_t bytes = evl_rows_bytes(rows);
	d->held -= bytes;
	if (bytes > d->batch_bytes)
		evl_rows_deinit(rows);
	else
		evl_rows_clear(rows);
}

/* Forget what was handed out. */
static void clear(struct evl_decoder *d)
{
	if (d->emptied != NOBODY)
		empty(d, &d->threads[d->emptied].rows);
	if (d->given != NOBODY)
		evl_pages_clear(&d->threads[d->given].pages);
	d->emptied = d->given = NOBODY;
	evl_stacks_trim(&d->stacks);
}

static int give_thunks(struct evl_decoder *d, struct thread *t, struct evl_batch *ret)
{
	evl_rows_batch(&t->rows, t->number, ret);
	ret->new_stacks = evl_stacks_new(&d->stacks, &ret->new_offsets, &ret->new_words);
	d->emptied = (int32_t)t->index;
	return EVL_THUNKS;
}

static int give_accesses(struct evl_decoder *d, struct thread *t, struct evl_accesses *ret)
{
	evl_pages_batch(&t->pages, t->number, ret);
	d->given = (int32_t)t->index;
	return EVL_ACCESSES;
}

static struct thread *fullest(struct evl_decoder *d)
{
	struct thread *found = d->threads;
	for (struct thread *t = found + 1; t < d->threads + d->count; t++)
		if (evl_rows_bytes(&t->rows) > evl_rows_bytes(&found->rows))
			found = t;
	return found;
}

/* Read the next record of the thread that needs one; first of all, of every thread. 1 done, 0: its accesses must be
 * fetched before. */
static int read_on(struct evl_decoder *d)
{
	int result = 1;
	while (d->reading != NOBODY && (result = advance(d, &d->threads[d->reading])) > 0)
		d->reading = d->unread < d->count ? (int32_t)d->unread++ : NOBODY;
	return result;
}

/* All lists are read: what is left of each thread. */
static int flush(struct evl_decoder *d, struct evl_batch *ret, struct evl_accesses *ret_accesses)
{
	for (; d->flushing < d->count; d->flushing++) {
		struct thread *t = &d->threads[d->flushing];
		if (t->rows.rows)
			return give_thunks(d, t, ret);
		if (t->pages.rows || t->pages.spans)
			return give_accesses(d, t, ret_accesses);
	}
	return 0;
}

int evl_decoder_next(struct evl_decoder *d, struct evl_batch *ret, struct evl_accesses *ret_accesses)
{
	clear(d);
	if (!d->started)
		start(d);
	for (;;) {
		int result = read_on(d);
		if (result < 0)
			return result;
		if (result == 0)
			return give_accesses(d, &d->threads[d->reading], ret_accesses);
		struct thread *t = evl_choose(d);
		if (!t)
			return flush(d, ret, ret_accesses);
		evl_heap_pop(t->state == STALLED ? &d->stalled : &d->ready);
		evl_leave_queue(d, t);
		uint64_t before = evl_rows_bytes(&t->rows), bytes;
		int error = evl_decode_record(d, t);
		if (error)
			return error;
		d->reading = (int32_t)t->index;
		bytes = evl_rows_bytes(&t->rows);
		d->held += bytes - before;
		if (bytes >= GREATEST_BATCH)
			return give_thunks(d, t, ret);
		if (d->held >= BATCH_BYTES) /* among thousands of threads, few may do nearly everything */
			return give_thunks(d, fullest(d), ret);
	}
}

static void add(struct evl_counts *counts, const struct evl_file *file)
{
	counts->unfinished += file->unfinished;
	counts->corrupt += file->corrupt;
	counts->unread += file->unread;
	counts->lost += file->lost;
}

void evl_decoder_counts(const struct evl_decoder *d, struct evl_counts *ret)
{
	*ret = (struct evl_counts){.rows = d->rows, .accesses = d->accesses, .missing = d->missing, .inexact = d->inexact};
	for (uint32_t i = 0; i < d->count; i++)
		add(ret, &d->threads[i].file);
}

void evl_decoder_thread_counts(const struct evl_decoder *d, uint32_t index, struct evl_counts *ret)
{
	*ret = (struct evl_counts){
		.rows = (uint64_t)d->threads[index].thunks,
		.accesses = (uint64_t)d->threads[index].pages.records,
	};
	add(ret, &d->threads[index].file);
}
