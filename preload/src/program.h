/* SPDX-License-Identifier: MIT */
/*
 * Process mode: what the kernel keeps for each process and the program has once: limits, user and group ids, processor
 * time. Kept in shared memory; whoever changes something has the others follow before the call returns.
 *
 * Thread-safe. The clocks are signal-safe, the changes are not (nor are they as the C library has them).
 */
#ifndef PTW_PROGRAM_H
#define PTW_PROGRAM_H

#include "passed.h"
#include "servant.h"
#include "slots.h"

#include <sys/resource.h>
#include <sys/types.h>

enum { PTW_LIMITS = RLIM_NLIMITS, PTW_GROUPS = 65536 };

/* What ended threads had used. */
struct ptw_usage {
	uint64_t cpu_ns, user_us, system_us;
	uint64_t child_user_us, child_system_us;
	uint64_t minor, major, in, out, voluntary, involuntary;
	uint64_t resident; /* the greatest, KiB */
};

struct ptw_program {
	uint32_t limits_lock, ids_lock, usage_lock;
	uint32_t servant[PTW_SERVANTS]; /* their tids */
	uint32_t limit_changed[PTW_LIMITS];
	struct rlimit64 limit[PTW_LIMITS];
	uint32_t most_units; /* of the heap, and one; 0: all */
	uint32_t zero_too;
	uint64_t ids_changed; /* how often */
	uint32_t user[3], group[3];
	uint32_t groups;
	uint32_t zero;
	struct ptw_usage ended;
	uint64_t buried_user_us, buried_system_us; /* of processes of ended threads: the kernel counts them as children */
	struct ptw_passed passed;
	gid_t list[PTW_GROUPS];
};

#define ptw_program_state ((struct ptw_program *)PTW_META_PROGRAM)
_Static_assert(sizeof(struct ptw_program) <= PTW_META_PROGRAM_SIZE, "fits its place");

/* In the process of a new thread, before it can be seen to run: have what the program has by now. */
PTW_HIDDEN void ptw_rlimits_follow(void);
PTW_HIDDEN void ptw_ids_follow(void);

/* prlimit of a process; `process` 0: the program. 0 or negative errno. For raw calls, too. */
PTW_HIDDEN long ptw_rlimit(pid_t process, int resource, const struct rlimit64 *value, struct rlimit64 *old);

/* Before an exec: the kernel is told the limits it was not told yet. When the exec fails, it forgets them. */
PTW_HIDDEN void ptw_rlimits_exec(struct rlimit64 before[PTW_LIMITS]);
PTW_HIDDEN void ptw_rlimits_exec_failed(const struct rlimit64 before[PTW_LIMITS]);

/* One of the system calls that change ids, done for all threads; 0 or negative errno. */
PTW_HIDDEN long ptw_change_ids(long number, long a, long b, long c);

/* Signal-safe: what other threads changed is done here too; and the name that this one was given. */
PTW_HIDDEN void ptw_ids_serve(void);
PTW_HIDDEN void ptw_name_serve(void);

/* The calling thread's process is about to end: keep what it used. */
PTW_HIDDEN void ptw_usage_end(void);

/* In the main process: the process of an ended thread was reaped. */
PTW_HIDDEN void ptw_usage_buried(const struct rusage *usage);

/* In a fork child: it has used nothing. */
PTW_HIDDEN void ptw_program_forked(void);

/* getrusage; 0 or negative errno. */
struct ptw_frame;
PTW_HIDDEN long ptw_get_usage(int who, struct rusage *ret, const struct ptw_frame *caller);

/* A clock as the kernel takes it: the clock of another thread is that of its process. */
PTW_HIDDEN clockid_t ptw_clock_of(clockid_t clock);

/* Processor time of the program. */
PTW_HIDDEN uint64_t ptw_program_cpu_ns(void);

#endif
