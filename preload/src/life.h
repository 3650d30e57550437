/* SPDX-License-Identifier: MIT */
/*
 * Process mode: the life of a thread, as glibc's functions of the same names have it. threading.c puts them behind the
 * interposers; joining waits are cancellation points. Not for signal handlers.
 */
#ifndef PTW_LIFE_H
#define PTW_LIFE_H

#include "slots.h"

#include <threads.h>

/* Bytes that a thread needs more of its stack than natively, with room to spare: thread-local storage, and what logs,
 * unwinds and binds lazily on it. */
enum { PTW_EXTRA_STACK = 32768 };

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
