/* SPDX-License-Identifier: MIT */
/*
 * Process mode: the life of a thread, as glibc's functions of the same names have it. threading.c puts them behind the
 * interposers; joining waits are cancellation points. Not for signal handlers.
 */
#ifndef PTW_LIFE_H
#define PTW_LIFE_H

#include "slots.h"

#include <threads.h>

/* Whether attributes give memory for the stack; then where that is, else what size is asked for. */
static inline bool ptw_stack_given(const pthread_attr_t *attributes, uint64_t *low, size_t *size)
{
	void *start = NULL;
	if (pthread_attr_getstack(attributes, &start, size) == 0 && start && (uint64_t)start + *size != 0) {
		*low = (uint64_t)start;
		return true;
	}
	pthread_attr_getstacksize(attributes, size);
	return false;
}

/* What we keep in each thread, log, unwind and bind lazily on its stack comes on top of what the program needs: a stack
 * that is asked to be small is larger by so many bytes, with room to spare. Others have room. */
enum { PTW_SMALL_STACK = 256 << 10, PTW_EXTRA_STACK = 32 << 10 };
static inline size_t ptw_stack_size(size_t asked)
{
	return asked < PTW_SMALL_STACK ? asked + PTW_EXTRA_STACK : asked;
}

PTW_HIDDEN int ptw_life_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *),
			       void *argument);
PTW_HIDDEN int ptw_life_join(pthread_t thread, void **ret);
PTW_HIDDEN int ptw_life_tryjoin(pthread_t thread, void **ret);
PTW_HIDDEN int ptw_life_timedjoin(pthread_t thread, void **ret, const struct timespec *until);
PTW_HIDDEN int ptw_life_clockjoin(pthread_t thread, void **ret, clockid_t clock, const struct timespec *until);
PTW_HIDDEN int ptw_life_detach(pthread_t thread);
PTW_HIDDEN void ptw_life_exit(void *result) __attribute__((noreturn));
PTW_HIDDEN int ptw_life_create11(thrd_t *thread, thrd_start_t routine, void *argument);
PTW_HIDDEN int ptw_life_join11(thrd_t thread, int *ret);
PTW_HIDDEN int ptw_life_detach11(thrd_t thread);
PTW_HIDDEN void ptw_life_exit11(int result) __attribute__((noreturn));

/* The calling thread's last destructor has run. In the main thread of process mode it does not return. */
PTW_HIDDEN void ptw_thread_ended(void);

#endif
