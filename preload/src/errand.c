/* SPDX-License-Identifier: MIT */
/* Calls in the main process's name; errand.h says what is guaranteed. */
#define _GNU_SOURCE
#include "errand.h"

#include "children.h"
#include "control.h"

#include <string.h>

enum { IDLE = 0, ASKED, ANSWERED };

struct ptw_errand *ptw_errand_begin(void)
{
	struct ptw_errand *errand = &ptw_errands[ptw_slot_index];
	uint64_t mask = PTW_ALL_BUT_FAULTS, before;
	PTW_SYS(SYS_rt_sigprocmask, SIG_BLOCK, &mask, &before, sizeof mask, 0, 0);
	errand->mask = before;
	memset(errand->data, 0, sizeof errand->data);
	return errand;
}

static void make_call(struct ptw_errand *errand)
{
	const long *a = errand->argument;
	errand->result = errand->number == PTW_ERRAND_WATCH
				 ? ptw_children_watch((uint32_t)a[0])
				 : ptw_syscall(errand->number, a[0], a[1], a[2], a[3], a[4], 0);
}

long ptw_errand_run(struct ptw_errand *errand, long number, long a, long b, long c, long d, long e)
{
	uint32_t state;
	errand->number = number;
	memcpy(errand->argument, (long[]){a, b, c, d, e}, sizeof errand->argument);
	uint32_t herald = __atomic_load_n(&ptw_shared->herald, __ATOMIC_ACQUIRE);
	if (ptw_is_main() || !herald) {
		make_call(errand);
		return errand->result;
	}
	__atomic_store_n(&errand->state, ASKED, __ATOMIC_SEQ_CST);
	PTW_SYS(SYS_tgkill, ptw_shared->main_pid, herald, PTW_CONTROL_SIGNAL, 0, 0, 0);
	while ((state = __atomic_load_n(&errand->state, __ATOMIC_ACQUIRE)) != ANSWERED)
		ptw_shared_wait(&errand->state, state, NULL);
	return errand->result;
}

void ptw_errand_end(struct ptw_errand *errand)
{
	errand->state = IDLE;
	ptw_restore_signals(&errand->mask);
}

void ptw_errands_serve(void)
{
	for (uint32_t i = 0; i < __atomic_load_n(&ptw_shared->slots_high, __ATOMIC_ACQUIRE); i++) {
		struct ptw_errand *errand = &ptw_errands[i];
		if (__atomic_load_n(&errand->state, __ATOMIC_SEQ_CST) != ASKED)
			continue;
		make_call(errand);
		__atomic_store_n(&errand->state, ANSWERED, __ATOMIC_RELEASE);
		ptw_shared_wake(&errand->state, 1);
	}
}

void ptw_errands_forget(void)
{
	for (uint32_t i = 0; i < ptw_shared->slots_high; i++)
		ptw_errands[i].state = IDLE;
}
