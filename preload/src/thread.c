/* SPDX-License-Identifier: MIT */
/*
 * Threads: create, join, detach, as POSIX and C11 spell them.
 *
 * A new thread shakes hands before its start routine runs. Its creator does not wait for that. Who a pthread_t is
 * (serial and tid) is written to the object table by the thread itself and by its creator, both while the thread
 * lives: the creator's write comes before pthread_create returns, and a thread's end waits for it. So a reused
 * pthread_t never names the wrong thread.
 *
 * The caller's pthread_t is written once, by whichever of the two comes first, because the memory it lies in may be
 * gone as soon as the new thread runs.
 *
 * pthread_exit and thrd_exit log nothing: the end of a thread is logged by a thread-specific destructor, the last of
 * the last round, so that what other destructors do is still in the list.
 */
#define _GNU_SOURCE
#include "fitness.h"
#include "life.h"
#include "pages.h"
#include "process.h"
#include "real.h"
#include "view.h"

#include <errno.h>
#include <string.h>

enum { STARTS = 4096, TCB_SCAN = 1024 };

enum start_state { START_PENDING = 0, START_AWAITED = 1, START_CREATED = 2 };

/* A thread from its creation to its end. From a fixed pool: no allocator is asked. When all are in use (4096 threads),
 * a new thread starts without one and shakes hands when it first logs. */
struct ptw_start {
	uint32_t used;
	uint32_t references; /* creator and thread */
	uint32_t named;      /* who writes the caller's pthread_t: 0 nobody yet, 1 being written, 2 written */
	uint32_t created;    /* enum start_state, a futex */
	void *(*routine)(void *);
	int (*routine11)(void *);
	void *argument;
	pthread_t handle;
	pthread_t *where;
	uint64_t serial;
	uint32_t creator;
	uint32_t tid; /* once the thread runs */
	uint32_t extra; /* bytes of its stack that nobody asked for */
};

/* In process mode the pool is shared. */
static struct ptw_start own_starts[STARTS];
static struct ptw_start *starts = own_starts;
_Static_assert(sizeof own_starts <= PTW_META_STARTS_SIZE, "the pool fits its place");
static uint32_t tid_offset; /* of the tid in glibc's struct pthread; 0 unknown */

void ptw_threads_share(void) { starts = (struct ptw_start *)PTW_META_STARTS; }

void ptw_threads_init(void)
{
	const uint32_t *block = (const uint32_t *)pthread_self();
	uint32_t tid = (uint32_t)ptw_gettid(), found = 0, matches = 0;
	for (uint32_t i = 1; i < TCB_SCAN / 4; i++) {
		if (block[i] == tid) {
			found = i * 4;
			matches++;
		}
	}
	tid_offset = matches == 1 ? found : 0;
}

void ptw_threads_forget(void)
{
	struct ptw_start *mine = ptw_self.start;
	for (struct ptw_start *start = starts; start < starts + STARTS; start++)
		if (start->used && start != mine)
			memset(start, 0, sizeof *start);
	if (mine) {
		mine->references = 1;
		mine->created = START_CREATED;
	}
}

static struct ptw_start *claim(void)
{
	static PTW_CHANGING uint32_t hint;
	uint32_t from = __atomic_load_n(&hint, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < STARTS; i++) {
		struct ptw_start *start = &starts[(from + i) % STARTS];
		uint32_t free = 0;
		if (__atomic_load_n(&start->used, __ATOMIC_RELAXED) == 0 &&
		    __atomic_compare_exchange_n(&start->used, &free, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
			__atomic_store_n(&hint, (from + i + 1) % STARTS, __ATOMIC_RELAXED);
			return start;
		}
	}
	return NULL;
}

static void release(struct ptw_start *start)
{
	if (__atomic_sub_fetch(&start->references, 1, __ATOMIC_ACQ_REL) == 0) {
		memset((char *)start + sizeof start->used, 0, sizeof *start - sizeof start->used);
		__atomic_store_n(&start->used, 0, __ATOMIC_RELEASE);
	}
}

/* Write the caller's pthread_t, unless that is done; returns when it is. */
static void name(struct ptw_start *start, pthread_t handle)
{
	uint32_t nobody = 0;
	if (__atomic_compare_exchange_n(&start->named, &nobody, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
		if (ptw_private)
			ptw_view_put(start->where, &handle, sizeof handle);
		else
			*start->where = handle;
		__atomic_store_n(&start->named, 2, __ATOMIC_RELEASE);
		return;
	}
	while (__atomic_load_n(&start->named, __ATOMIC_ACQUIRE) != 2)
		PTW_SYS(SYS_sched_yield, 0, 0, 0, 0, 0, 0); /* not the C library's: it would be the program's */
}

static uint64_t handle_key(pthread_t handle) { return (uint64_t)handle | 1; }

static void publish(pthread_t handle, uint64_t serial, uint32_t tid)
{
	struct ptw_object *object = ptw_object_get(ptw_process.objects, handle_key(handle));
	if (object)
		__atomic_store_n(&object->version, ptw_thread_name(serial, tid), __ATOMIC_RELEASE);
	else
		__atomic_fetch_add(&ptw_process.lists->untracked, 1, __ATOMIC_RELAXED);
}

static uint64_t lookup(pthread_t handle)
{
	struct ptw_object *object = ptw_object_get(ptw_process.objects, handle_key(handle));
	return object ? __atomic_load_n(&object->version, __ATOMIC_ACQUIRE) : 0;
}

/* --- the new thread --------------------------------------------------------------------------------------------- */

static uint64_t routine_of(const struct ptw_start *start)
{
	return start->routine ? (uint64_t)start->routine : (uint64_t)start->routine11;
}

static void arrive(struct ptw_start *start, const struct ptw_frame *caller)
{
	uint64_t mask;
	uint32_t tid = (uint32_t)ptw_gettid();
	__atomic_store_n(&start->tid, tid, __ATOMIC_RELEASE);
	if (tid_offset && *(const uint32_t *)((const char *)pthread_self() + tid_offset) != tid)
		tid_offset = 0; /* not what we took it for */
	ptw_self.start = start;
	ptw_thread_watch_end();
	ptw_block_signals(&mask);
	if (ptw_tracing()) {
		publish(pthread_self(), start->serial, tid);
		ptw_thread_attach(start->serial, routine_of(start));
		ptw_log_start(caller, pthread_self(), start->serial, start->creator);
	}
	ptw_restore_signals(&mask);
	name(start, pthread_self()); /* an access to the program's memory: not before the start is logged */
}

static void *run(void *argument)
{
	struct ptw_frame caller = PTW_CALLER;
	struct ptw_start *start = argument;
	arrive(start, &caller);
	return start->routine(start->argument);
}

static int run11(void *argument)
{
	struct ptw_frame caller = PTW_CALLER;
	struct ptw_start *start = argument;
	arrive(start, &caller);
	return start->routine11(start->argument);
}

void ptw_thread_greet_early(void *(*routine)(void *), void *argument)
{
	const struct ptw_start *start = argument;
	if (ptw_tracing() && (routine == run || routine == (void *(*)(void *))(void (*)(void))run11))
		ptw_thread_greet(start->serial, routine_of(start));
}

void ptw_thread_finished(const struct ptw_frame *caller)
{
	struct ptw_start *start = ptw_self.start;
	ptw_pages_boundary(); /* while there is a list to log it */
	if (ptw_tracing())
		ptw_thread_end(caller);
	if (!start) {
		ptw_thread_ended();
		return;
	}
	uint32_t pending = START_PENDING;
	__atomic_compare_exchange_n(&start->created, &pending, START_AWAITED, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	while (__atomic_load_n(&start->created, __ATOMIC_ACQUIRE) != START_CREATED)
		ptw_shared_wait(&start->created, START_AWAITED, &(struct timespec){0, 100000000});
	ptw_self.start = NULL;
	release(start);
	ptw_thread_ended();
}

/* --- create ------------------------------------------------------------------------------------------------------ */

/* With a stack that has room for us, too. The copy shares glibc's members of the other, and is not destroyed. */
static const pthread_attr_t *with_room(const pthread_attr_t *asked, pthread_attr_t *ret, struct ptw_start *start)
{
	uint64_t low;
	size_t size = 0;
	if (!asked || ptw_process_mode) /* which finds room by itself */
		return asked;
	if (ptw_stack_given(asked, &low, &size))
		return asked;
	*ret = *asked;
	if (pthread_attr_setstacksize(ret, ptw_stack_size(size)) != 0)
		return asked;
	if (start)
		start->extra = (uint32_t)(ptw_stack_size(size) - size);
	return ret;
}

size_t ptw_thread_extra(pthread_t thread)
{
	for (const struct ptw_start *start = starts; start < starts + STARTS; start++)
		if (start->used && start->handle == thread && start->extra)
			return start->extra;
	return 0;
}

static struct ptw_start *prepare(pthread_t *where, void *argument)
{
	struct ptw_start *start = claim();
	if (start) {
		start->references = 2;
		start->where = where;
		start->argument = argument;
		start->serial = ptw_next_serial();
		start->creator = (uint32_t)ptw_gettid();
	}
	return start;
}

static void created(struct ptw_start *start, const struct ptw_frame *caller, uint64_t enter, int error)
{
	struct ptw_event event = {PTW_CREATE, 0, error, 0, 0};
	if (error == 0) {
		uint32_t tid = __atomic_load_n(&start->tid, __ATOMIC_ACQUIRE);
		name(start, start->handle);
		if (ptw_private)
			ptw_view_look(start->where, sizeof start->handle);
		if (tid == 0 && tid_offset)
			tid = *(const uint32_t *)((const char *)start->handle + tid_offset);
		publish(start->handle, start->serial, tid);
		event = (struct ptw_event){PTW_CREATE, start->handle, 0, start->serial, tid};
		if (__atomic_exchange_n(&start->created, START_CREATED, __ATOMIC_ACQ_REL) == START_AWAITED)
			ptw_shared_wake(&start->created, 1);
	} else {
		release(start); /* the thread's reference: there is none */
	}
	release(start);
	ptw_log(&event, caller, enter, ptw_tsc());
}

PTW_EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *),
			      void *argument)
{
	struct ptw_frame caller = PTW_CALLER;
	if (!ptw_process_mode)
		ptw_fit_surprise((const void *)caller.pc);
	pthread_attr_t roomy;
	struct ptw_start *start = ptw_tracing() ? prepare(thread, argument) : NULL;
	attributes = with_room(attributes, &roomy, start);
	if (!start)
		return REAL(pthread_create)(thread, attributes, routine, argument);
	uint64_t enter = ptw_tsc();
	start->routine = routine;
	int result = REAL(pthread_create)(&start->handle, attributes, run, start);
	created(start, &caller, enter, result);
	return result;
}

static int c11_error(int result)
{
	return result == thrd_success ? 0 : result == thrd_nomem ? ENOMEM : result == thrd_busy ? EBUSY : EINVAL;
}

PTW_EXPORT int thrd_create(thrd_t *thread, thrd_start_t routine, void *argument)
{
	struct ptw_frame caller = PTW_CALLER;
	if (!ptw_process_mode)
		ptw_fit_surprise((const void *)caller.pc);
	struct ptw_start *start = ptw_tracing() ? prepare(thread, argument) : NULL;
	if (!start)
		return REAL(thrd_create)(thread, routine, argument);
	uint64_t enter = ptw_tsc();
	start->routine11 = routine;
	int result = REAL(thrd_create)(&start->handle, run11, start);
	created(start, &caller, enter, c11_error(result));
	return result;
}

/* --- join and detach --------------------------------------------------------------------------------------------- */

static void joined(const struct ptw_frame *caller, uint64_t enter, pthread_t thread, uint64_t before, int result)
{
	struct ptw_event event = {PTW_JOIN, thread, result, 0, ptw_name_tid(before)};
	if (result == 0) {
		uint64_t who = before ? before : lookup(thread);
		event.version = ptw_name_serial(who);
		event.argument = ptw_name_tid(who);
	}
	ptw_log(&event, caller, enter, ptw_tsc());
}

#define JOIN(call)                                                 \
	struct ptw_frame caller = PTW_CALLER;                      \
	if (!ptw_tracing())                                        \
		return (call);                                     \
	uint64_t enter = ptw_tsc(), before = lookup(thread);       \
	int result = (call);                                       \
	joined(&caller, enter, thread, before, result);            \
	return result

PTW_EXPORT int pthread_join(pthread_t thread, void **ret) { JOIN(REAL(pthread_join)(thread, ret)); }

PTW_EXPORT int pthread_tryjoin_np(pthread_t thread, void **ret) { JOIN(REAL(pthread_tryjoin_np)(thread, ret)); }

PTW_EXPORT int pthread_timedjoin_np(pthread_t thread, void **ret, const struct timespec *until)
{
	JOIN(REAL(pthread_timedjoin_np)(thread, ret, until));
}

PTW_EXPORT int pthread_clockjoin_np(pthread_t thread, void **ret, clockid_t clock, const struct timespec *until)
{
	JOIN(REAL(pthread_clockjoin_np)(thread, ret, clock, until));
}

PTW_EXPORT int thrd_join(thrd_t thread, int *ret)
{
	struct ptw_frame caller = PTW_CALLER;
	if (!ptw_tracing())
		return REAL(thrd_join)(thread, ret);
	uint64_t enter = ptw_tsc(), before = lookup(thread);
	int result = REAL(thrd_join)(thread, ret);
	joined(&caller, enter, thread, before, c11_error(result));
	return result;
}

static void detached(const struct ptw_frame *caller, uint64_t enter, pthread_t thread, uint64_t who, int result)
{
	struct ptw_event event = {PTW_DETACH, thread, result, 0, ptw_name_tid(who)};
	ptw_log(&event, caller, enter, ptw_tsc());
}

PTW_EXPORT int pthread_detach(pthread_t thread)
{
	struct ptw_frame caller = PTW_CALLER;
	if (!ptw_tracing())
		return REAL(pthread_detach)(thread);
	uint64_t enter = ptw_tsc(), who = lookup(thread);
	int result = REAL(pthread_detach)(thread);
	detached(&caller, enter, thread, who, result);
	return result;
}

PTW_EXPORT int thrd_detach(thrd_t thread)
{
	struct ptw_frame caller = PTW_CALLER;
	if (!ptw_tracing())
		return REAL(thrd_detach)(thread);
	uint64_t enter = ptw_tsc(), who = lookup(thread);
	int result = REAL(thrd_detach)(thread);
	detached(&caller, enter, thread, who, c11_error(result));
	return result;
}
