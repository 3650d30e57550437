/* SPDX-License-Identifier: MIT */
/* The decoder's inside, for the files that are parts of it; evl.h says what is guaranteed. */
#ifndef PTW_EVL_INNER_H
#define PTW_EVL_INNER_H

#include "evl.h"

#include "evl_clock.h"
#include "evl_file.h"
#include "evl_heap.h"
#include "evl_operation.h"
#include "evl_pages.h"
#include "evl_rows.h"
#include "evl_stacks.h"

enum {
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
	uint64_t key;    /* when it is due: an acquire where it ended, a release where it began */
	uint64_t latest; /* where it ended: what it waits for happened before that */
	struct evl_vector clock;
	struct evl_rows rows;
	struct evl_pages pages;
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
	struct evl_stacks stacks;
	uint64_t batch_bytes; /* a thread's share of what may be held back */
	uint64_t held;	      /* of all threads' rows */
	uint64_t rows, accesses, missing, inexact;
	int32_t emptied; /* thread whose thunks were handed out; */
	int32_t given;   /* whose accesses were */
	int32_t reading; /* whose next record is to be read */
	uint32_t unread;   /* threads from here on were not read at all */
	uint32_t flushing;
	bool started;
};

/* --- evl_wait.c: who may go --- */

/* The earliest thread of a heap, or NULL. */
struct thread *evl_earliest(struct evl_decoder *d, struct evl_heap *heap);

/* Who goes next: the earliest that is ready, unless one that waits for something had ended long before. */
struct thread *evl_choose(struct evl_decoder *d);

struct evl_object *evl_object_of(struct evl_decoder *d, const struct thread *t, const struct evl_record *r);
struct life *evl_life_of(struct evl_decoder *d, uint64_t kind, uint64_t whose, uint64_t serial);
struct life *evl_life_for(struct evl_decoder *d, const struct thread *t, const struct evl_record *r);

/* The version an acquire joins up to: a barrier's ends its generation, when no more threads than its count use it. */
uint64_t evl_wanted_version(const struct thread *t, const struct evl_object *object, const struct evl_record *r);

/* Put a thread with its next record where it waits; let those in a queue offer theirs again; take one out of it. */
int evl_offer(struct evl_decoder *d, struct thread *t);
int evl_wake(struct evl_decoder *d, int32_t *queue);
void evl_leave_queue(struct evl_decoder *d, struct thread *t);

/* --- evl_order.c: what a record joins and publishes --- */

/* Decode the thread's record: its row is added to the thread's. */
int evl_decode_record(struct evl_decoder *d, struct thread *t);

#endif
