/* SPDX-License-Identifier: MIT */
/* From operations to records; log.h says what is guaranteed. */
#define _GNU_SOURCE
#include "log.h"

#include "access.h"
#include "process.h"

#include <pthread.h>

__thread struct ptw_thread ptw_self __attribute__((tls_model("initial-exec")));

static PTW_CHANGING uint32_t never;
uint32_t *ptw_live = &never;

void ptw_log(const struct ptw_event *event, const struct ptw_frame *caller, uint64_t enter, uint64_t leave)
{
	if (ptw_self.state == PTW_THREAD_NEW) {
		ptw_thread_attach(ptw_next_serial(), 0);
		ptw_log_start(caller, pthread_self(), 0, 0);
	}
	if (ptw_self.state != PTW_THREAD_TRACED)
		return;
	uint64_t stack[PTW_MAX_FRAMES];
	struct ptw_record record = {
		.operation = (uint16_t)event->operation,
		.frames = (uint16_t)ptw_unwind(caller, ptw_self.top, stack, PTW_MAX_FRAMES),
		.tsc_enter = enter,
		.tsc_exit = leave,
		.object = event->object,
		.result = event->result,
		.object_version = event->version,
		.argument = event->argument,
	};
	if (__builtin_expect(ptw_exact_standing | ptw_exact_stack, 0))
		ptw_exact_thunk_ends();
	ptw_writer_put(&ptw_self.writer, &record, stack);
	if (__builtin_expect(ptw_exact_standing | ptw_exact_stack, 0))
		ptw_exact_thunk_begins();
}

static struct ptw_object *object_of(const void *address)
{
	struct ptw_object *object = ptw_object_get(ptw_process.objects, (uint64_t)address);
	if (!object)
		__atomic_fetch_add(&ptw_process.lists->untracked, 1, __ATOMIC_RELAXED);
	return object;
}

/* Versions are of releases that are logged: what a thread does when it has ended (glibc frees buffers of its own then, by
 * the program's allocator, if it has one) makes none. */
uint64_t ptw_release(const void *address)
{
	if (ptw_self.state != PTW_THREAD_TRACED && ptw_self.state != PTW_THREAD_NEW)
		return 0;
	struct ptw_object *object = object_of(address);
	return object ? ptw_object_release(object) : 0;
}

uint64_t ptw_acquire(const void *address)
{
	struct ptw_object *object = object_of(address);
	return object ? ptw_object_acquire(object) : 0;
}

void ptw_log_acquire(enum ptw_operation operation, const struct ptw_frame *caller, uint64_t enter, const void *object,
		     int64_t result, bool acquired)
{
	uint64_t version = acquired ? ptw_acquire(object) : 0;
	struct ptw_event event = {operation, (uint64_t)object, result, version, 0};
	ptw_log(&event, caller, enter, ptw_tsc());
}

void ptw_log_release(enum ptw_operation operation, const struct ptw_frame *caller, uint64_t enter, const void *object,
		     int64_t result, uint64_t version)
{
	struct ptw_event event = {operation, (uint64_t)object, result, version, 0};
	ptw_log(&event, caller, enter, ptw_tsc());
}
