/* SPDX-License-Identifier: MIT */
/* Waits that can be cancelled; wait.h says what is guaranteed. */
#define _GNU_SOURCE
#include "wait.h"

#include <pthread.h>

/* While the kernel waits, the thread may be cancelled at any instruction; nothing is held or half done meanwhile. */
long ptw_wait_cancellable(uint32_t *word, uint32_t value, clockid_t clock, const struct timespec *until)
{
	int type;
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
	long result = ptw_wait_until(word, value, clock, until);
	pthread_setcanceltype(type, NULL);
	return result;
}
