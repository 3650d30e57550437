/* SPDX-License-Identifier: MIT */
/* What a record joins and what it publishes: vector clocks, and its row. evl.h says what they mean. */
#include "evl_inner.h"

#include "evl_time.h"

#include <errno.h>

/* Releases up to `version` are not in the lists. The end of a process cuts its other threads short: each may have made
 * one release that it did not come to log, and those are not missing. */
static int note_gap(struct evl_decoder *d, const struct thread *t, const struct evl_object *object, uint64_t version)
{
	struct life *cut = evl_life_of(d, CUT, t->section.image, 0);
	if (!cut)
		return -ENOMEM;
	uint64_t gap = version - object->done;
	if (gap > cut->cut)
		d->missing++;
	else
		cut->cut -= (uint32_t)gap;
	return 0;
}

/* A writer's unlock is told from a reader's by who holds the lock: also where nobody had released it before. */
static int take_first(struct evl_decoder *d, struct thread *t, const struct evl_record *r)
{
	if (!evl_writes(r->operation))
		return 0;
	struct evl_object *object = evl_object_of(d, t, r);
	if (!object)
		return -ENOMEM;
	object->writer = (int32_t)t->index;
	return 0;
}

static int join(struct evl_decoder *d, struct thread *t, const struct evl_record *r)
{
	if (r->version == 0)
		return take_first(d, t, r);
	if (evl_names_thread(r->operation)) {
		struct life *life = evl_life_for(d, t, r);
		if (!life)
			return -ENOMEM;
		struct evl_clock *clock = r->operation == EVL_OP_START ? life->birth : life->death;
		if (!clock)
			d->missing++;
		if (r->operation == EVL_OP_START && r->object != 0)
			t->life = life;
		return evl_vector_join(&t->clock, clock);
	}
	struct evl_object *object = evl_object_of(d, t, r);
	if (!object)
		return -ENOMEM;
	uint64_t version = evl_wanted_version(t, object, r);
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
	struct life *life = evl_life_for(d, t, r);
	if (!life)
		return -ENOMEM;
	evl_clock_release(life->birth); /* a fork's key comes again when tids do */
	life->birth = evl_vector_publish(&t->clock);
	return life->birth ? evl_wake(d, &life->waiting) : -ENOMEM;
}

static int publish(struct evl_decoder *d, struct thread *t, const struct evl_record *r)
{
	if (evl_names_thread(r->operation))
		return publish_life(d, t, r);
	struct evl_object *object = evl_object_of(d, t, r);
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
	return error ? error : evl_wake(d, &object->waiting);
}

int evl_decode_record(struct evl_decoder *d, struct thread *t)
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
	return evl_rows_add(&t->rows, &row, &t->clock, d->numbers, &d->stacks, r->stack, r->frames);
}
