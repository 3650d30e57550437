/* SPDX-License-Identifier: MIT */
/*
 * Reader-writer locks, barriers, semaphores and once-only calls between processes; psync.h says how.
 *
 * pthread_once waits on a process-private futex and knows no other. So nobody enters glibc's while somebody else is in
 * it: who comes first passes a gate and opens it again from within, others wait here. A routine that is left by an
 * exception or by cancellation has happened before the next one that runs, as one that returned has before who waited.
 */
#define _GNU_SOURCE
#include "alias.h"
#include "nap.h"
#include "pages.h"
#include "psync.h"
#include "slots.h"

#include <errno.h>
#include <unwind.h>

static int acquired(int result)
{
	ptw_pages_boundary();
	return result;
}

/* --- reader-writer locks --- */

static pthread_rwlock_t *shared(pthread_rwlock_t *lock)
{
	pthread_rwlock_t *alias = ptw_alias_of(lock);
	if (ptw_alias_is_shared(lock, alias))
		__atomic_store_n(&alias->__data.__shared, 1, __ATOMIC_RELEASE);
	return alias;
}

static int rw_init(pthread_rwlock_t *restrict lock, const pthread_rwlockattr_t *restrict attributes)
{
	pthread_rwlockattr_t copy;
	if (attributes)
		copy = *attributes;
	return GLIBC(pthread_rwlock_init)(ptw_alias_of(lock), attributes ? &copy : NULL);
}

static int rw_destroy(pthread_rwlock_t *lock) { return GLIBC(pthread_rwlock_destroy)(shared(lock)); }

static int rdlock(pthread_rwlock_t *lock) { return acquired(GLIBC(pthread_rwlock_rdlock)(shared(lock))); }

static int tryrdlock(pthread_rwlock_t *lock) { return acquired(GLIBC(pthread_rwlock_tryrdlock)(shared(lock))); }

static int timedrdlock(pthread_rwlock_t *restrict lock, const struct timespec *restrict until)
{
	struct timespec copy = *until;
	return acquired(GLIBC(pthread_rwlock_timedrdlock)(shared(lock), &copy));
}

static int clockrdlock(pthread_rwlock_t *restrict lock, clockid_t clock, const struct timespec *restrict until)
{
	struct timespec copy = *until;
	return acquired(GLIBC(pthread_rwlock_clockrdlock)(shared(lock), clock, &copy));
}

static int wrlock(pthread_rwlock_t *lock) { return acquired(GLIBC(pthread_rwlock_wrlock)(shared(lock))); }

static int trywrlock(pthread_rwlock_t *lock) { return acquired(GLIBC(pthread_rwlock_trywrlock)(shared(lock))); }

static int timedwrlock(pthread_rwlock_t *restrict lock, const struct timespec *restrict until)
{
	struct timespec copy = *until;
	return acquired(GLIBC(pthread_rwlock_timedwrlock)(shared(lock), &copy));
}

static int clockwrlock(pthread_rwlock_t *restrict lock, clockid_t clock, const struct timespec *restrict until)
{
	struct timespec copy = *until;
	return acquired(GLIBC(pthread_rwlock_clockwrlock)(shared(lock), clock, &copy));
}

static int rw_unlock(pthread_rwlock_t *lock)
{
	ptw_pages_boundary();
	return GLIBC(pthread_rwlock_unlock)(shared(lock));
}

/* --- barriers --- */

static int barrier_init(pthread_barrier_t *restrict barrier, const pthread_barrierattr_t *restrict attributes,
			unsigned count)
{
	pthread_barrierattr_t process_shared;
	(void)attributes; /* there is no other attribute */
	pthread_barrierattr_init(&process_shared);
	pthread_barrierattr_setpshared(&process_shared, PTHREAD_PROCESS_SHARED);
	int result = GLIBC(pthread_barrier_init)(ptw_alias_of(barrier), &process_shared, count);
	pthread_barrierattr_destroy(&process_shared);
	return result;
}

static int barrier_destroy(pthread_barrier_t *barrier) { return GLIBC(pthread_barrier_destroy)(ptw_alias_of(barrier)); }

static int barrier_wait(pthread_barrier_t *barrier)
{
	return acquired(GLIBC(pthread_barrier_wait)(ptw_alias_of(barrier)));
}

/* --- semaphores --- */

static int semaphore_init(sem_t *semaphore, int process_shared, unsigned value)
{
	(void)process_shared;
	return GLIBC(sem_init)(ptw_alias_of(semaphore), 1, value);
}

static int semaphore_destroy(sem_t *semaphore) { return GLIBC(sem_destroy)(ptw_alias_of(semaphore)); }

static int semaphore_value(sem_t *restrict semaphore, int *restrict ret)
{
	int value = 0, result = GLIBC(sem_getvalue)(ptw_alias_of(semaphore), &value);
	*ret = value;
	return result;
}

static int semaphore_wait(sem_t *semaphore)
{
	PTW_VIEW_CALL; /* it may wait for who waits for what this thread wrote */
	return acquired(GLIBC(sem_wait)(ptw_alias_of(semaphore)));
}

static int semaphore_trywait(sem_t *semaphore) { return acquired(GLIBC(sem_trywait)(ptw_alias_of(semaphore))); }

static int semaphore_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until)
{
	PTW_VIEW_CALL;
	struct timespec copy = *until;
	return acquired(PTW_NAP(int, GLIBC(sem_timedwait)(ptw_alias_of(semaphore), &copy), ));
}

static int semaphore_clockwait(sem_t *restrict semaphore, clockid_t clock, const struct timespec *restrict until)
{
	PTW_VIEW_CALL;
	struct timespec copy = *until;
	return acquired(PTW_NAP(int, GLIBC(sem_clockwait)(ptw_alias_of(semaphore), clock, &copy), ));
}

static int semaphore_post(sem_t *semaphore)
{
	ptw_pages_boundary();
	return GLIBC(sem_post)(ptw_alias_of(semaphore));
}

/* --- once --- */

enum { ONCE_RUNNING = 1, ONCE_DONE = 2 };

static __thread void (*once_routine)(void) __attribute__((tls_model("initial-exec")));

/* Calls a function. Its personality routine is called when the function's frames are unwound, whoever unwinds them: so
 * C++ exceptions, cancellation and pthread_exit all are seen, and no unwinder has to be linked for it. */
PTW_HIDDEN void ptw_once_call(void (*routine)(void));
__asm__(".pushsection .text\n"
	".hidden ptw_once_call\n"
	".globl ptw_once_call\n"
	".type ptw_once_call, @function\n"
	"ptw_once_call:\n"
	".cfi_startproc\n"
	".cfi_personality 0x1b, ptw_once_left\n" /* relative to its place, 4 bytes */
	"	subq $8, %rsp\n"
	".cfi_adjust_cfa_offset 8\n"
	"	call *%rdi\n"
	"	addq $8, %rsp\n"
	".cfi_adjust_cfa_offset -8\n"
	"	ret\n"
	".cfi_endproc\n"
	".size ptw_once_call, .-ptw_once_call\n"
	".popsection\n");

/* glibc lets the next one run when its own frame, the one above, is unwound. */
PTW_HIDDEN _Unwind_Reason_Code ptw_once_left(int version, _Unwind_Action actions, _Unwind_Exception_Class class,
					     struct _Unwind_Exception *exception, struct _Unwind_Context *context);
_Unwind_Reason_Code ptw_once_left(int version, _Unwind_Action actions, _Unwind_Exception_Class class,
				  struct _Unwind_Exception *exception, struct _Unwind_Context *context)
{
	(void)version, (void)class, (void)exception, (void)context;
	if (actions & _UA_CLEANUP_PHASE)
		ptw_pages_boundary();
	return _URC_CONTINUE_UNWIND;
}

static void run_once(void)
{
	void (*routine)(void) = once_routine;
	ptw_unlock(&ptw_shared->once_lock);
	ptw_pages_boundary(); /* after a routine that was left */
	ptw_once_call(routine);
	ptw_pages_boundary();
}

static int once(pthread_once_t *control, void (*routine)(void))
{
	uint32_t *word = ptw_alias_of(control), value;
	const struct timespec pause = {0, 2000000}; /* a routine left by an exception wakes nobody */
	while (!((value = __atomic_load_n(word, __ATOMIC_ACQUIRE)) & ONCE_DONE)) {
		if (value & ONCE_RUNNING) {
			ptw_shared_wait(word, value, &pause);
			continue;
		}
		ptw_lock(&ptw_shared->once_lock);
		if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != 0) {
			ptw_unlock(&ptw_shared->once_lock);
			continue;
		}
		once_routine = routine;
		GLIBC(pthread_once)((pthread_once_t *)word, run_once);
		ptw_shared_wake(word, INT32_MAX);
		return 0;
	}
	return acquired(0);
}

static void once11(once_flag *flag, void (*routine)(void)) { once((pthread_once_t *)flag, routine); }

void ptw_psync_other_use(struct ptw_real *table)
{
	table->pthread_rwlock_init = rw_init;
	table->pthread_rwlock_destroy = rw_destroy;
	table->pthread_rwlock_rdlock = rdlock;
	table->pthread_rwlock_tryrdlock = tryrdlock;
	table->pthread_rwlock_timedrdlock = timedrdlock;
	table->pthread_rwlock_clockrdlock = clockrdlock;
	table->pthread_rwlock_wrlock = wrlock;
	table->pthread_rwlock_trywrlock = trywrlock;
	table->pthread_rwlock_timedwrlock = timedwrlock;
	table->pthread_rwlock_clockwrlock = clockwrlock;
	table->pthread_rwlock_unlock = rw_unlock;
	table->pthread_barrier_init = barrier_init;
	table->pthread_barrier_destroy = barrier_destroy;
	table->pthread_barrier_wait = barrier_wait;
	table->sem_init = semaphore_init;
	table->sem_destroy = semaphore_destroy;
	table->sem_getvalue = semaphore_value;
	table->sem_wait = semaphore_wait;
	table->sem_trywait = semaphore_trywait;
	table->sem_timedwait = semaphore_timedwait;
	table->sem_clockwait = semaphore_clockwait;
	table->sem_post = semaphore_post;
	table->pthread_once = once;
	table->call_once = once11;
}
