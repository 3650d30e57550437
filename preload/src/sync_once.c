/* SPDX-License-Identifier: MIT */
/*
 * Once-only calls. ONCE_DONE releases when the routine has run, before glibc lets others go on; ONCE acquires, in who
 * found it done, or waited for it. That is logged the first time a thread calls; again only when the object was done anew
 * since (others come to lie where some were).
 */
#define _GNU_SOURCE
#include "event.h"
#include "log.h"
#include "real.h"

enum { SEEN = 16 };

/* One call that has not returned. */
struct call {
	const void *object;
	void (*routine)(void);
	uint64_t version; /* that the routine's end made; 0: it did not run here, or the table is full */
	uint64_t done;    /* when it ended; 0: it did not run here */
};

/* The innermost call of this thread. Left alone by an exception: whoever calls next sets it, nobody else reads it. */
static __thread struct call *current __attribute__((tls_model("initial-exec")));

/* What this thread has seen done lately, by address. */
static __thread struct {
	const void *object;
	uint64_t version;
} seen[SEEN] __attribute__((tls_model("initial-exec")));

static unsigned place_of(const void *object) { return (unsigned)((uint64_t)object >> 2) % SEEN; }

static void run(void)
{
	struct call *call = current;
	call->routine();
	call->done = ptw_tsc();
	call->version = ptw_release(call->object);
}

/* Remember the version; true when this thread had seen it already. */
static bool note(const void *object, uint64_t version)
{
	unsigned place = place_of(object);
	bool known = seen[place].object == object && seen[place].version == version;
	seen[place].object = object;
	seen[place].version = version;
	return known;
}

static void log_call(const struct call *call, const struct ptw_frame *caller, uint64_t enter, int result)
{
	uint64_t version = call->done ? call->version : ptw_acquire(call->object);
	bool known = note(call->object, version);
	if (call->done)
		ptw_log_release(PTW_ONCE_DONE, caller, call->done, call->object, result, version);
	else if (!known && version)
		ptw_log_acquire(PTW_ONCE, caller, enter, call->object, result, result == 0);
}

PTW_EXPORT int pthread_once(pthread_once_t *control, void (*routine)(void))
{
	struct ptw_frame caller = PTW_CALLER;
	if (!ptw_tracing())
		return REAL(pthread_once)(control, routine);
	struct call call = {.object = control, .routine = routine}, *outer = current;
	uint64_t enter = ptw_tsc();
	current = &call;
	int result = REAL(pthread_once)(control, run);
	current = outer;
	log_call(&call, &caller, enter, result);
	return result;
}

PTW_EXPORT void call_once(once_flag *flag, void (*routine)(void))
{
	struct ptw_frame caller = PTW_CALLER;
	if (!ptw_tracing()) {
		REAL(call_once)(flag, routine);
		return;
	}
	struct call call = {.object = flag, .routine = routine}, *outer = current;
	uint64_t enter = ptw_tsc();
	current = &call;
	REAL(call_once)(flag, run);
	current = outer;
	log_call(&call, &caller, enter, 0);
}
