/* SPDX-License-Identifier: MIT */
/*
 * Who may go. Each thread offers its next record. A record is ready when everything that its operation waited for is
 * decoded: an acquire of version v, all releases of the object up to v; a start, the create or fork with its serial; a
 * join, the whole of the other thread. Ready threads wait in a heap by time, the others in a second one and in the list
 * of the object (or life) that will make them ready.
 */
#include "evl_inner.h"

#include <errno.h>
#include <stdlib.h>

/* The earliest thread of a heap, or NULL; old entries go. */
struct thread *evl_earliest(struct evl_decoder *d, struct evl_heap *heap)
{
	while (heap->count) {
		struct thread *thread = &d->threads[heap->dues[0].thread];
		if (thread->stamp == heap->dues[0].stamp)
			return thread;
		evl_heap_pop(heap);
	}
	return NULL;
}

struct evl_object *evl_object_of(struct evl_decoder *d, const struct thread *t, const struct evl_record *r)
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

struct life *evl_life_of(struct evl_decoder *d, uint64_t kind, uint64_t whose, uint64_t serial)
{
	struct life **place = (struct life **)evl_map_get(&d->lives, kind << 32 | whose, serial);
	if (place && !*place) {
		*place = calloc(1, sizeof **place);
		if (*place)
			(*place)->waiting = NOBODY;
	}
	return place ? *place : NULL;
}

struct life *evl_life_for(struct evl_decoder *d, const struct thread *t, const struct evl_record *r)
{
	if (r->operation == EVL_OP_FORK)
		return evl_life_of(d, BIRTH, t->section.tid, r->version);
	if (r->operation == EVL_OP_START && r->object == 0)
		return evl_life_of(d, BIRTH, (uint32_t)r->argument, r->version);
	return evl_life_of(d, LIFE, t->section.image, r->version);
}

/* The version an acquire joins up to: a barrier's ends its generation, when no more threads than its count use it. */
uint64_t evl_wanted_version(const struct thread *t, const struct evl_object *object, const struct evl_record *r)
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
		struct life *life = evl_life_for(d, t, r);
		if (!life)
			return -ENOMEM;
		if (r->operation == EVL_OP_START ? !life->birth : r->operation == EVL_OP_JOIN && !life->death)
			*ret_queue = &life->waiting;
		return 0;
	}
	struct evl_object *object = evl_object_of(d, t, r);
	if (!object)
		return -ENOMEM;
	if (object->done < (release ? r->version - 1 : evl_wanted_version(t, object, r)))
		*ret_queue = &object->waiting;
	return 0;
}

int evl_offer(struct evl_decoder *d, struct thread *t)
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
	return evl_heap_push(queue ? &d->stalled : &d->ready,
			     (struct evl_due){queue ? t->latest : t->key, t->index, t->stamp});
}

int evl_wake(struct evl_decoder *d, int32_t *queue)
{
	int32_t waiting = *queue;
	*queue = NOBODY;
	while (waiting != NOBODY) {
		struct thread *t = &d->threads[waiting];
		waiting = t->next_waiting;
		int error = evl_offer(d, t);
		if (error)
			return error;
	}
	return 0;
}

void evl_leave_queue(struct evl_decoder *d, struct thread *t)
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

/* Who goes next: the earliest that is ready, unless one that waits for something had ended long before.
 *
 * Ended, not begun: a release takes its time first and makes its version afterwards, and the thread may have stood
 * still in between, while others made versions before its own. Those began before this release ended, whatever
 * happened, so that none of them is given up that is in the lists. */
struct thread *evl_choose(struct evl_decoder *d)
{
	struct thread *ready = evl_earliest(d, &d->ready), *stalled = evl_earliest(d, &d->stalled);
	if (stalled && (!ready || (ready->key > stalled->latest && ready->key - stalled->latest > d->slack)))
		return stalled;
	return ready;
}
