/* SPDX-License-Identifier: MIT */
/*
 * OpenMP's teams, in both modes of threads. Who begins a parallel region makes a team on its stack; each member, the
 * maker among them, begins (TEAM_BEGIN acquires what TEAM released) and ends (TEAM_END releases what TEAM_JOIN acquires).
 * The words of the team are not used for anything but their addresses, which name its objects.
 *
 * The library's own waiting is its own: what is logged is what its functions promise when they return (OpenMP 5.0, 2.17
 * and 1.4.4), before a release and after an acquire, with a thunk's end there.
 */
#ifndef PTW_OPENMP_TEAM_H
#define PTW_OPENMP_TEAM_H

#include "log.h"
#include "openmp_real.h"
#include "pages.h"
#include "slots.h"

struct ptw_team;

/* A thread's way through a barrier. */
struct ptw_passage {
	const struct ptw_openmp *openmp;
	struct ptw_team *team; /* NULL: outside of regions a barrier is none */
	const void *barrier;
	uint64_t enter, version, count;
};

struct ptw_team {
	const void *reductions; /* GOMP_parallel_reductions looks here, and nowhere else in a region's data */
	uint64_t begin, end, order, tasks, tasks_done; /* objects */
	uint16_t barrier[PTW_SLOTS]; /* one object for each count of members: as many arrive before any leaves */
	struct ptw_team *name; /* this, where the program sees it: others may look through the alias */
	ptw_openmp_body *body;
	void *data;
	struct ptw_openmp functions; /* a copy: a member's process may not know them */
	uint64_t code;          /* in the caller's library */
	uint32_t shift;         /* of the barrier among its like */
	uint32_t has_tasks;
	uint32_t is_cancelled;
	struct ptw_team *outer; /* its maker's, before */
	struct ptw_passage outer_single;
	uint64_t made_free;     /* when its maker had done its own part */
};

/* The team this thread works in; NULL where it never did, and in who makes teams outside of them. */
extern PTW_HIDDEN __thread struct ptw_team *ptw_team __attribute__((tls_model("initial-exec")));

static inline void ptw_team_boundary(void)
{
	if (ptw_process_mode)
		ptw_pages_boundary();
}

/* Log a release of `object` of which nobody can know yet: what it is for is done afterwards. */
PTW_HIDDEN void ptw_team_release(enum ptw_operation operation, const struct ptw_frame *caller, const void *object, int64_t result,
				 uint64_t argument);

/* Log an acquire that was waited for since `enter`. */
PTW_HIDDEN void ptw_team_acquire(enum ptw_operation operation, const struct ptw_frame *caller, uint64_t enter,
				 const void *object, int64_t result, uint64_t argument);

/* What one thread has at a time (openmp_locks.c): before it is waited for, when it is had (`result` 0) or not, and before it is
 * given up: the version that makes, 0 none. `object` may be NULL: it is not logged. */
PTW_HIDDEN void ptw_lock_prepare(void);
PTW_HIDDEN void ptw_lock_acquired(enum ptw_operation operation, const struct ptw_frame *caller, uint64_t enter,
				  const void *object, int result);
PTW_HIDDEN uint64_t ptw_lock_releases(const void *object);

/* What tasks of this team have done until now is seen, if there were any. */
PTW_HIDDEN void ptw_team_meet_tasks(const struct ptw_frame *caller, uint64_t enter);

#endif
