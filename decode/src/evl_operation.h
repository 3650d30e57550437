/* SPDX-License-Identifier: MIT */
/* What each operation does to clocks. The numbers are ptweave.data.evl.Operation's; a test keeps them equal. */
#ifndef PTW_EVL_OPERATION_H
#define PTW_EVL_OPERATION_H

#include "evl_file.h"

#include <stdbool.h>

enum evl_operation {
	EVL_OP_START = 1,
	EVL_OP_EXIT = 2,
	EVL_OP_CREATE = 3,
	EVL_OP_JOIN = 4,
	EVL_OP_MUTEX_LOCK = 5,
	EVL_OP_MUTEX_TRYLOCK = 6,
	EVL_OP_MUTEX_TIMEDLOCK = 7,
	EVL_OP_MUTEX_UNLOCK = 8,
	EVL_OP_COND_WAIT = 9,
	EVL_OP_COND_TIMEDWAIT = 10,
	EVL_OP_COND_SIGNAL = 11,
	EVL_OP_COND_BROADCAST = 12,
	EVL_OP_BARRIER_WAIT = 13,
	EVL_OP_RDLOCK = 14,
	EVL_OP_TRYRDLOCK = 15,
	EVL_OP_TIMEDRDLOCK = 16,
	EVL_OP_WRLOCK = 17,
	EVL_OP_TRYWRLOCK = 18,
	EVL_OP_TIMEDWRLOCK = 19,
	EVL_OP_RWUNLOCK = 20,
	EVL_OP_SEM_WAIT = 21,
	EVL_OP_SEM_TRYWAIT = 22,
	EVL_OP_SEM_TIMEDWAIT = 23,
	EVL_OP_SEM_POST = 24,
	EVL_OP_SPIN_LOCK = 25,
	EVL_OP_SPIN_TRYLOCK = 26,
	EVL_OP_SPIN_UNLOCK = 27,
	EVL_OP_COND_WAIT_BEGIN = 28,
	EVL_OP_BARRIER_ARRIVE = 29,
	EVL_OP_FORK = 30,
	EVL_OP_DETACH = 31,
	EVL_OP_COND_RELOCK = 32,
	EVL_OP_ACCESS_READ = 33,
	EVL_OP_ACCESS_WRITE = 34,
	EVL_OP_ACCESS_END = 35,
	EVL_OP_ACCESS_COMMIT = 36,
	EVL_OP_ALLOCATION = 37,
	EVL_OP_ONCE = 38,
	EVL_OP_ONCE_DONE = 39,
	EVL_OP_TEAM = 40,
	EVL_OP_TEAM_BEGIN = 41,
	EVL_OP_TEAM_END = 42,
	EVL_OP_TEAM_JOIN = 43,
	EVL_OP_TASK = 44,
	EVL_OP_TASK_BEGIN = 45,
	EVL_OP_TASK_END = 46,
	EVL_OP_TASK_WAIT = 47,
	EVL_OPERATIONS, /* one more than the last */
};

#define EVL_BARRIER_COUNT(argument) ((argument) & ~(1ull << 63))

/* It published its thread's clock. */
bool evl_is_release(const struct evl_record *record);

/* It joined a published clock. */
bool evl_is_acquire(const struct evl_record *record);

/* Reader and writer acquires of a reader-writer lock. */
bool evl_reads(uint16_t operation);
bool evl_writes(uint16_t operation);

/* It makes a version of its object, even when it then failed. */
bool evl_makes_version(uint16_t operation);

/* Its object is a thread or a process: its version is a serial. */
bool evl_names_thread(uint16_t operation);

/* How many versions back acquires of its object may ask for. */
uint32_t evl_window_of(const struct evl_record *record);

#endif
