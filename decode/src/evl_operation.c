/* SPDX-License-Identifier: MIT */
/* What each operation does; see evl_operation.h. */
#include "evl_operation.h"

#include <errno.h>

enum {
	EXCLUSIVE_WINDOW = 2, /* versions kept of objects that one thread holds at a time, */
	SHARED_WINDOW = 256,  /* and of others */
	GREATEST_COUNT = 1 << 20,
};

bool evl_is_release(const struct evl_record *r)
{
	switch (r->operation) {
	case EVL_OP_MUTEX_UNLOCK:
	case EVL_OP_SPIN_UNLOCK:
	case EVL_OP_RWUNLOCK:
	case EVL_OP_SEM_POST:
	case EVL_OP_COND_SIGNAL:
	case EVL_OP_COND_BROADCAST:
	case EVL_OP_CREATE:
	case EVL_OP_ONCE_DONE:
		return r->result == 0;
	case EVL_OP_FORK:
		return r->result >= 0 && r->version != 0;
	case EVL_OP_COND_WAIT_BEGIN:
	case EVL_OP_BARRIER_ARRIVE:
	case EVL_OP_EXIT:
	case EVL_OP_TEAM:
	case EVL_OP_TEAM_END:
	case EVL_OP_TASK:
	case EVL_OP_TASK_END:
		return true;
	default:
		return false;
	}
}

bool evl_is_acquire(const struct evl_record *r)
{
	switch (r->operation) {
	case EVL_OP_MUTEX_LOCK:
	case EVL_OP_MUTEX_TRYLOCK:
	case EVL_OP_MUTEX_TIMEDLOCK:
		return r->result == 0 || r->result == EOWNERDEAD;
	case EVL_OP_COND_RELOCK:
	case EVL_OP_TEAM_BEGIN:
	case EVL_OP_TEAM_JOIN:
	case EVL_OP_TASK_BEGIN:
	case EVL_OP_TASK_WAIT:
		return true;
	case EVL_OP_COND_WAIT:
	case EVL_OP_COND_TIMEDWAIT:
	case EVL_OP_RDLOCK:
	case EVL_OP_TRYRDLOCK:
	case EVL_OP_TIMEDRDLOCK:
	case EVL_OP_WRLOCK:
	case EVL_OP_TRYWRLOCK:
	case EVL_OP_TIMEDWRLOCK:
	case EVL_OP_SEM_WAIT:
	case EVL_OP_SEM_TRYWAIT:
	case EVL_OP_SEM_TIMEDWAIT:
	case EVL_OP_SPIN_LOCK:
	case EVL_OP_SPIN_TRYLOCK:
	case EVL_OP_JOIN:
	case EVL_OP_ONCE:
		return r->result == 0;
	case EVL_OP_BARRIER_WAIT:
		return r->result == 0 || r->result == -1;
	case EVL_OP_START:
		return r->version != 0;
	default:
		return false;
	}
}

bool evl_reads(uint16_t operation) { return operation >= EVL_OP_RDLOCK && operation <= EVL_OP_TIMEDRDLOCK; }
bool evl_writes(uint16_t operation) { return operation >= EVL_OP_WRLOCK && operation <= EVL_OP_TIMEDWRLOCK; }

bool evl_makes_version(uint16_t operation)
{
	switch (operation) {
	case EVL_OP_MUTEX_UNLOCK:
	case EVL_OP_SPIN_UNLOCK:
	case EVL_OP_RWUNLOCK:
	case EVL_OP_SEM_POST:
	case EVL_OP_COND_SIGNAL:
	case EVL_OP_COND_BROADCAST:
	case EVL_OP_COND_WAIT_BEGIN:
	case EVL_OP_BARRIER_ARRIVE:
	case EVL_OP_ONCE_DONE:
	case EVL_OP_TEAM:
	case EVL_OP_TEAM_END:
	case EVL_OP_TASK:
	case EVL_OP_TASK_END:
		return true;
	default:
		return false;
	}
}

bool evl_names_thread(uint16_t operation)
{
	switch (operation) {
	case EVL_OP_START:
	case EVL_OP_EXIT:
	case EVL_OP_CREATE:
	case EVL_OP_JOIN:
	case EVL_OP_FORK:
	case EVL_OP_DETACH:
		return true;
	default:
		return false;
	}
}

uint32_t evl_window_of(const struct evl_record *r)
{
	uint64_t count = EVL_BARRIER_COUNT(r->argument);
	switch (r->operation) {
	case EVL_OP_BARRIER_ARRIVE:
	case EVL_OP_BARRIER_WAIT: /* this generation's arrivals and the next's */
		return count <= SHARED_WINDOW / 2 ? SHARED_WINDOW : count < GREATEST_COUNT ? (uint32_t)count * 2 : GREATEST_COUNT;
	case EVL_OP_MUTEX_LOCK:
	case EVL_OP_MUTEX_TRYLOCK:
	case EVL_OP_MUTEX_TIMEDLOCK:
	case EVL_OP_MUTEX_UNLOCK:
	case EVL_OP_COND_WAIT_BEGIN:
	case EVL_OP_COND_RELOCK:
	case EVL_OP_SPIN_LOCK:
	case EVL_OP_SPIN_TRYLOCK:
	case EVL_OP_SPIN_UNLOCK:
		return EXCLUSIVE_WINDOW;
	default:
		return SHARED_WINDOW;
	}
}
