/* SPDX-License-Identifier: MIT */
/*
 * What libtthread logs: operations, records, and the header of a list file.
 *
 * Records from PTW_ACCESS_READ to PTW_ALLOCATION begin no thunk. Mirrors data/ptweave/data/evl.py, where the fields are
 * explained. A test keeps the two equal.
 */
#ifndef PTW_EVENT_H
#define PTW_EVENT_H

#include <stdbool.h>
#include <stdint.h>

enum ptw_operation {
	PTW_START = 1,
	PTW_EXIT = 2,
	PTW_CREATE = 3,
	PTW_JOIN = 4,
	PTW_MUTEX_LOCK = 5,
	PTW_MUTEX_TRYLOCK = 6,
	PTW_MUTEX_TIMEDLOCK = 7,
	PTW_MUTEX_UNLOCK = 8,
	PTW_COND_WAIT = 9,
	PTW_COND_TIMEDWAIT = 10,
	PTW_COND_SIGNAL = 11,
	PTW_COND_BROADCAST = 12,
	PTW_BARRIER_WAIT = 13,
	PTW_RDLOCK = 14,
	PTW_TRYRDLOCK = 15,
	PTW_TIMEDRDLOCK = 16,
	PTW_WRLOCK = 17,
	PTW_TRYWRLOCK = 18,
	PTW_TIMEDWRLOCK = 19,
	PTW_RWUNLOCK = 20,
	PTW_SEM_WAIT = 21,
	PTW_SEM_TRYWAIT = 22,
	PTW_SEM_TIMEDWAIT = 23,
	PTW_SEM_POST = 24,
	PTW_SPIN_LOCK = 25,
	PTW_SPIN_TRYLOCK = 26,
	PTW_SPIN_UNLOCK = 27,
	PTW_COND_WAIT_BEGIN = 28,
	PTW_BARRIER_ARRIVE = 29,
	PTW_FORK = 30,
	PTW_DETACH = 31,
	PTW_COND_RELOCK = 32,
	PTW_ACCESS_READ = 33,
	PTW_ACCESS_WRITE = 34,
	PTW_ACCESS_END = 35,
	PTW_ACCESS_COMMIT = 36,
	PTW_ALLOCATION = 37,
	PTW_ONCE = 38,
	PTW_ONCE_DONE = 39,
	PTW_TEAM = 40,
	PTW_TEAM_BEGIN = 41,
	PTW_TEAM_END = 42,
	PTW_TEAM_JOIN = 43,
	PTW_TASK = 44,
	PTW_TASK_BEGIN = 45,
	PTW_TASK_END = 46,
	PTW_TASK_WAIT = 47,
	PTW_OPERATIONS, /* one more than the last */
};

enum {
	PTW_MAX_FRAMES = 64,
	PTW_EVL_HEADER_SIZE = 64,
	PTW_RECORD_SIZE = 56,  /* without the stack */
	PTW_RECORD_OPEN = 1,   /* bit of `size`: the record was begun and not finished */
};

#define PTW_EVL_MAGIC 0x00314c5645575450ull /* "PTWEVL1\0" */
#define PTW_BARRIER_SERIAL (1ull << 63)     /* bit of a barrier_wait's argument */

/* One record; its stack (frames words, innermost first) follows. */
struct ptw_record {
	uint32_t size;
	uint16_t operation;
	uint16_t frames;
	uint64_t tsc_enter;
	uint64_t tsc_exit;
	uint64_t object;
	int64_t result;
	uint64_t object_version;
	uint64_t argument;
};

static inline bool ptw_begins_thunk(unsigned operation) { return operation < PTW_ACCESS_READ || operation > PTW_ALLOCATION; }

/* The header that begins a section of dependence/<thread>.evl. */
struct ptw_evl_header {
	uint64_t magic;
	uint32_t pid;
	uint32_t tid;
	int32_t thread;
	uint32_t flags;
	uint64_t tsc;
	uint64_t marker;
	uint64_t start_routine;
	uint64_t lost;
	uint64_t zero;
};

_Static_assert(sizeof(struct ptw_record) == PTW_RECORD_SIZE, "record layout");
_Static_assert(sizeof(struct ptw_evl_header) == PTW_EVL_HEADER_SIZE, "header layout");

#endif
