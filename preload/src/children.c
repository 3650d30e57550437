/* SPDX-License-Identifier: MIT */
/* Waiting for children; children.h says what is guaranteed. The waits are cancellation points. */
#define _GNU_SOURCE
#include "children.h"

#include "errand.h"
#include "fork.h"
#include "handlers.h"
#include "kept_preload.h"
#include "real.h"
#include "servant.h"
#include "touch.h"
#include "vforks.h"
#include "view.h"
#include "wait.h"

#include <errno.h>
#include <sched.h>
#include <spawn.h>
#include <string.h>
#include <sys/resource.h>

enum { WATCHES = 64, OF_THREADS = (int)(__WALL | __WCLONE | __WNOTHREAD) };

/* --- watchers --- */

enum watch_state { IDLE = 0, ASKED, WATCHING };

/* What some thread waits for. The watcher does not reap, so nothing is lost when nobody asks any more. */
struct watch {
	uint32_t users;
	uint32_t type, id, options; /* as of waitid */
	uint32_t state;             /* enum watch_state, a futex */
	uint32_t has_thread;
	uint32_t events; /* futex */
	uint32_t unused;
};

struct watches {
	uint32_t lock;
	uint32_t unused[15];
	struct watch watch[WATCHES];
};

#define all ((struct watches *)PTW_META_WATCHES)

static void *keep_watch(void *argument)
{
	struct watch *watch = argument;
	uint32_t state;
	uint64_t before;
	ptw_block_signals(&before);
	ptw_servant_begin(PTW_WATCHER);
	for (;;) {
		while ((state = __atomic_load_n(&watch->state, __ATOMIC_ACQUIRE)) != ASKED)
			ptw_shared_wait(&watch->state, state, NULL);
		siginfo_t info;
		__atomic_store_n(&watch->state, WATCHING, __ATOMIC_RELEASE);
		PTW_SYS(SYS_waitid, watch->type, watch->id, &info, watch->options | WNOWAIT, 0, 0);
		__atomic_store_n(&watch->state, IDLE, __ATOMIC_SEQ_CST);
		__atomic_fetch_add(&watch->events, 1, __ATOMIC_SEQ_CST);
		ptw_shared_wake(&watch->events, INT32_MAX);
	}
	return NULL;
}

long ptw_children_watch(uint32_t index)
{
	return index < WATCHES ? -ptw_servant_start(keep_watch, &all->watch[index]) : -EINVAL;
}

void ptw_children_forget(void) { memset(all, 0, sizeof *all); }

/* A watch for this; NULL when all are in use for something else. */
static struct watch *join_watch(uint32_t type, uint32_t id, uint32_t options)
{
	struct watch *found = NULL;
	uint64_t mask;
	ptw_block_signals(&mask);
	ptw_lock(&all->lock);
	for (struct watch *watch = all->watch; watch < all->watch + WATCHES; watch++) {
		bool same = watch->type == type && watch->id == id && watch->options == options;
		bool idle = watch->users == 0 && watch->state == IDLE;
		if (same && !idle) {
			found = watch;
			break;
		}
		if (idle && (!found || (watch->has_thread && !found->has_thread)))
			found = watch;
	}
	if (found && found->users++ == 0 && found->state == IDLE) {
		found->type = type;
		found->id = id;
		found->options = options;
	}
	ptw_unlock(&all->lock);
	ptw_restore_signals(&mask);
	return found;
}

static void leave_watch(void *watch) { __atomic_fetch_sub(&((struct watch *)watch)->users, 1, __ATOMIC_SEQ_CST); }

static void ask(struct watch *watch)
{
	uint32_t idle = IDLE, none = 0;
	if (!__atomic_compare_exchange_n(&watch->state, &idle, ASKED, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		return;
	if (!__atomic_compare_exchange_n(&watch->has_thread, &none, 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
		ptw_shared_wake(&watch->state, 1);
		return;
	}
	struct ptw_errand *errand = ptw_errand_begin();
	if (ptw_errand_run(errand, PTW_ERRAND_WATCH, watch - all->watch, 0, 0, 0, 0) != 0) {
		watch->has_thread = 0; /* we look again and again, then */
		__atomic_store_n(&watch->state, IDLE, __ATOMIC_SEQ_CST);
	}
	ptw_errand_end(errand);
}

/* --- one look --- */

struct query {
	uint32_t type, id;
	int options;
	siginfo_t info;
	struct rusage usage;
};

/* What an errand's data holds. */
struct data {
	siginfo_t info;
	struct rusage usage;
};
_Static_assert(sizeof(struct data) <= PTW_ERRAND_DATA, "fits an errand");

enum look { NO_CHILD, NOT_YET, FOUND, FAILED };

static enum look outcome(long result, const siginfo_t *info)
{
	return result == -ECHILD ? NO_CHILD : result < 0 ? FAILED : info->si_pid ? FOUND : NOT_YET;
}

/* Among this thread's own. */
static enum look look_here(struct query *query, long *error)
{
	memset(&query->info, 0, sizeof query->info);
	*error = PTW_SYS(SYS_waitid, query->type, query->id, &query->info, query->options | WNOHANG, &query->usage, 0);
	return outcome(*error, &query->info);
}

/* Among the main process's. */
static enum look look_there(struct query *query, long *error)
{
	struct ptw_errand *errand = ptw_errand_begin();
	struct data *data = (struct data *)errand->data;
	*error = ptw_errand_run(errand, SYS_waitid, query->type, query->id, (long)&data->info, query->options | WNOHANG,
				(long)&data->usage);
	query->info = data->info;
	query->usage = data->usage;
	ptw_errand_end(errand);
	return outcome(*error, &query->info);
}

/* --- waiting --- */

/* 0 with what was found in the query, or negative errno; -EAGAIN: nothing yet. */
static long look(struct query *query, bool *own)
{
	long error, other;
	enum look here = look_here(query, &error), there = NO_CHILD;
	if (here != FOUND && here != FAILED)
		there = look_there(query, &other);
	*own = here == NOT_YET;
	if (here == FOUND || there == FOUND)
		return 0;
	if (here == FAILED || there == FAILED)
		return here == FAILED ? error : other;
	return here == NO_CHILD && there == NO_CHILD ? -ECHILD : -EAGAIN;
}

/* Wait until it is worth to look again. 0 or -EINTR. */
static long await_event(struct watch *watch, uint32_t seen, bool own, uint64_t runs)
{
	const struct timespec pause = {0, 2000000};
	if (own || !watch || !watch->has_thread) { /* own children, too: nothing tells of both */
		GLIBC(nanosleep)(&pause, NULL);
		return ptw_handler_runs == runs ? 0 : -EINTR;
	}
	long result = ptw_wait_cancellable(&watch->events, seen, CLOCK_MONOTONIC, NULL);
	return result == -EINTR && ptw_handler_runs != runs ? -EINTR : 0;
}

static long wait_watching(struct query *query, struct watch *watch)
{
	uint64_t runs = ptw_handler_runs;
	bool own;
	for (;;) {
		uint32_t seen = watch ? __atomic_load_n(&watch->events, __ATOMIC_SEQ_CST) : 0;
		if (watch)
			ask(watch);
		long result = look(query, &own);
		if (result == -EAGAIN)
			result = await_event(watch, seen, own, runs);
		else
			return result;
		if (result < 0)
			return result;
	}
}

static long wait_cancellable(struct query *query, struct watch *watch)
{
	long result;
	pthread_cleanup_push(leave_watch, watch);
	result = wait_watching(query, watch);
	pthread_cleanup_pop(0);
	return result;
}

/* For threads other than main. As waitid in the kernel; -EAGAIN: WNOHANG, and nothing yet. */
static long wait_for(struct query *query)
{
	bool own;
	long result = look(query, &own);
	if (result != -EAGAIN || query->options & WNOHANG)
		return result;
	struct watch *watch = join_watch(query->type, query->id, (uint32_t)query->options & (WEXITED | WSTOPPED | WCONTINUED));
	if (!watch)
		return wait_watching(query, NULL);
	result = wait_cancellable(query, watch);
	leave_watch(watch);
	return result;
}

static int status_of(const siginfo_t *info)
{
	int status = info->si_status;
	switch (info->si_code) {
	case CLD_EXITED:
		return (status & 0xff) << 8;
	case CLD_KILLED:
		return status & 0x7f;
	case CLD_DUMPED:
		return (status & 0x7f) | 0x80;
	case CLD_CONTINUED:
		return 0xffff;
	default: /* stopped, trapped */
		return (status & 0xff) << 8 | 0x7f;
	}
}

static bool is_thread(pid_t pid)
{
	for (uint32_t i = 0; i < __atomic_load_n(&ptw_shared->slots_high, __ATOMIC_ACQUIRE); i++)
		if (ptw_shared->slot[i].pid == (uint32_t)pid)
			return true;
	return false;
}

static pid_t fail(int error)
{
	errno = error;
	return -1;
}

static pid_t wait4_elsewhere(pid_t pid, int *ret, int options, struct rusage *usage)
{
	struct query query = {.type = P_ALL};
	if (options & ~(WNOHANG | WUNTRACED | WCONTINUED))
		return fail(EINVAL);
	query.options = WEXITED | (options & WNOHANG) | (options & WUNTRACED ? WSTOPPED : 0) | (options & WCONTINUED);
	if (pid > 0)
		query.type = P_PID, query.id = (uint32_t)pid;
	else if (pid != -1)
		query.type = P_PGID, query.id = (uint32_t)-pid;
	long result = wait_for(&query);
	if (result == -EAGAIN)
		return 0;
	if (result < 0)
		return fail((int)-result);
	if (ret)
		*ret = status_of(&query.info);
	if (usage)
		*usage = query.usage;
	return query.info.si_pid;
}

/* Threads are no children, though the kernel has them as such. */
PTW_EXPORT pid_t wait4(pid_t pid, int *ret, int options, struct rusage *usage)
{
	PTW_VIEW_CALL;
	if (!ptw_is_kept())
		return GLIBC(wait4)(pid, ret, options, usage);
	if (pid > 0 && is_thread(pid))
		return fail(ECHILD);
	if (!ptw_is_main())
		return wait4_elsewhere(pid, ret, options & ~OF_THREADS, usage);
	int status;
	struct rusage used;
	pid_t found = GLIBC(wait4)(pid, &status, pid > 0 ? options : options & ~OF_THREADS, &used);
	if (found > 0 && ret)
		*ret = status;
	if (found > 0 && usage)
		*usage = used;
	return found;
}

PTW_EXPORT pid_t wait3(int *ret, int options, struct rusage *usage)
{
	return ptw_process_mode ? wait4(-1, ret, options, usage) : GLIBC(wait3)(ret, options, usage);
}

PTW_EXPORT pid_t waitpid(pid_t pid, int *ret, int options)
{
	return ptw_process_mode ? wait4(pid, ret, options, NULL) : GLIBC(waitpid)(pid, ret, options);
}

PTW_EXPORT pid_t wait(int *ret) { return ptw_process_mode ? wait4(-1, ret, 0, NULL) : GLIBC(wait)(ret); }

PTW_EXPORT int waitid(idtype_t type, id_t id, siginfo_t *ret, int options)
{
	PTW_VIEW_CALL;
	siginfo_t info = {0};
	if (!ptw_is_kept())
		return GLIBC(waitid)(type, id, ret, options);
	if (type == P_PID && is_thread((pid_t)id))
		return fail(ECHILD);
	if (type != P_PID)
		options &= ~OF_THREADS;
	if (ptw_is_main()) {
		if (GLIBC(waitid)(type, id, &info, options) != 0)
			return -1;
	} else {
		struct query query = {.type = type, .id = id, .options = options & ~OF_THREADS};
		long result = wait_for(&query);
		if (result < 0 && result != -EAGAIN)
			return fail((int)-result);
		if (result == 0)
			info = query.info;
	}
	if (ret)
		*ret = info;
	return 0;
}

/* --- posix_spawn --- */

typedef int spawn_function(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
			   char *const *, char *const *);

struct spawning {
	spawn_function *function;
	const char *path;
	const posix_spawn_file_actions_t *actions;
	const posix_spawnattr_t *attributes;
	char *const *arguments, *const *environment;
	uint64_t mask; /* of the thread */
};

static long spawn_now(void *data)
{
	const struct spawning *spawning = data;
	pid_t pid;
	ptw_restore_signals(&spawning->mask); /* the child begins with it */
	int error = spawning->function(&pid, spawning->path, spawning->actions, spawning->attributes, spawning->arguments,
				       spawning->environment);
	return error ? -error : pid;
}

static int spawn_child(pid_t *ret, struct spawning *spawning, const struct ptw_frame *caller)
{
	if (ptw_tracking) {
		ptw_touch_string(spawning->path, caller);
		ptw_touch(spawning->actions, sizeof *spawning->actions, false, caller);
		ptw_touch(spawning->attributes, sizeof *spawning->attributes, false, caller);
		ptw_touch_strings(spawning->arguments, caller);
		ptw_touch_strings(spawning->environment, caller);
	}
	PTW_KEEP_PRELOAD(spawning->environment);
	PTW_SYS(SYS_rt_sigprocmask, SIG_BLOCK, 0, &spawning->mask, sizeof spawning->mask, 0, 0);
	long pid = ptw_process_mode && !ptw_is_main() ? ptw_fork_in_between(spawn_now, spawning) : spawn_now(spawning);
	if (pid < 0)
		return (int)-pid;
	if (ret)
		*ret = (pid_t)pid;
	return 0;
}

#define SPAWN(name)                                                                                              \
	PTW_EXPORT int name(pid_t *restrict ret, const char *restrict path,                                      \
			    const posix_spawn_file_actions_t *restrict actions,                                  \
			    const posix_spawnattr_t *restrict attributes, char *const *restrict arguments,       \
			    char *const *restrict environment)                                                   \
	{                                                                                                        \
		struct ptw_frame caller = PTW_CALLER;                                                            \
		struct spawning spawning = {GLIBC(name), path, actions, attributes, arguments, environment, 0}; \
		return spawn_child(ret, &spawning, &caller);                                                     \
	}
SPAWN(posix_spawn)
SPAWN(posix_spawnp)
