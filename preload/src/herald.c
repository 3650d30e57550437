/* SPDX-License-Identifier: MIT */
/* The herald; herald.h says what it does. */
#define _GNU_SOURCE
#include "herald.h"

#include "dispositions.h"
#include "errand.h"
#include "pending.h"
#include "program.h"
#include "timers.h"

static void serve(void)
{
	ptw_ids_serve();
	ptw_errands_serve();
}

static void *wait_for_signals(void *unused)
{
	const uint64_t all = ~0ull;
	uint64_t before;
	(void)unused;
	ptw_block_signals(&before); /* the C library leaves one of its own open */
	ptw_servant_begin(PTW_HERALD);
	__atomic_store_n(&ptw_shared->herald, (uint32_t)ptw_gettid(), __ATOMIC_RELEASE);
	ptw_shared_wake(&ptw_shared->herald, INT32_MAX);
	for (;;) {
		siginfo_t info;
		long signal = PTW_SYS(SYS_rt_sigtimedwait, &all, &info, 0, sizeof all, 0, 0);
		if (signal == PTW_CONTROL_SIGNAL)
			serve();
		else if (signal > 0 && !ptw_timers_fired((int)signal, &info) && signal != 32)
			ptw_pending_post((int)signal, &info);
	}
	return NULL;
}

int ptw_herald_start(void)
{
	if (ptw_shared->herald)
		return 0;
	ptw_dispositions_arm();
	int error = ptw_servant_start(wait_for_signals, NULL);
	while (error == 0 && !__atomic_load_n(&ptw_shared->herald, __ATOMIC_ACQUIRE))
		ptw_shared_wait(&ptw_shared->herald, 0, NULL);
	return error;
}

void ptw_herald_forget(void) { ptw_shared->herald = 0; }
