/* SPDX-License-Identifier: MIT */
/* The library's own threads; servant.h says what is guaranteed. */
#define _GNU_SOURCE
#include "servant.h"

#include "control.h"
#include "handshake.h"
#include "own_work.h"
#include "program.h"
#include "real.h"
#include "shared_lock.h"
#include "slots.h"
#include "spawn.h"

#include <sys/mman.h>
#include <sys/prctl.h>

enum { STACK = 128 << 10, CONTROL_BLOCK = 2304 };

#define tids (ptw_program_state->servant)

int ptw_servant_start(void *(*routine)(void *), void *argument)
{
	pthread_attr_t attributes;
	pthread_t thread;
	ptw_own_work(PTW_OWN_WORK_BEGINS);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	ptw_lock(&ptw_shared->create_lock);
	int error = GLIBC(pthread_create)(&thread, &attributes, routine, argument);
	if (error == 0)
		ptw_spawn_unlink(thread); /* the list is everybody's, the thread's memory is ours */
	ptw_unlock(&ptw_shared->create_lock);
	pthread_attr_destroy(&attributes);
	ptw_own_work(PTW_OWN_WORK_ENDS);
	return error;
}

/* New threads' processes need not copy it: the control block lies at its end, a guard page below. */
static void keep_stack(void)
{
	uint64_t end = ((uint64_t)pthread_self() + CONTROL_BLOCK + PTW_PAGE - 1) & ~(PTW_PAGE - 1);
	PTW_SYS(SYS_madvise, end - STACK - PTW_PAGE, STACK + PTW_PAGE, MADV_DONTFORK, 0, 0, 0);
}

void ptw_servant_begin(enum ptw_servant which)
{
	keep_stack();
	if (which < PTW_SERVANTS)
		__atomic_store_n(&tids[which], (uint32_t)ptw_gettid(), __ATOMIC_RELEASE);
	PTW_SYS(SYS_prctl, PR_SET_NAME, PTW_SERVANT_NAME, 0, 0, 0, 0);
}

bool ptw_servant_is_one(void)
{
	uint32_t tid = 0;
	for (unsigned i = 0; i < PTW_SERVANTS; i++) {
		uint32_t one = __atomic_load_n(&tids[i], __ATOMIC_ACQUIRE);
		if (one == 0)
			continue;
		tid = tid ? tid : (uint32_t)ptw_gettid();
		if (one == tid)
			return true;
	}
	return false;
}

void ptw_servants_call(void)
{
	for (unsigned i = 0; i < PTW_SERVANTS; i++)
		if (tids[i])
			PTW_SYS(SYS_tgkill, ptw_shared->main_pid, tids[i], PTW_CONTROL_SIGNAL, 0, 0, 0);
}
