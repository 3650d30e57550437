/* SPDX-License-Identifier: MIT */
/* Process mode's beginning; threading.h says what is guaranteed. */
#define _GNU_SOURCE
#include "threading.h"

#include "dispositions.h"
#include "fork.h"
#include "handshake.h"
#include "heap.h"
#include "libc_locks.h"
#include "life.h"
#include "loader.h"
#include "notice.h"
#include "own_work.h"
#include "passed.h"
#include "pages.h"
#include "places.h"
#include "process.h"
#include "psync.h"
#include "real.h"
#include "segments.h"
#include "spawn.h"

#include <dlfcn.h>
#include <sys/stat.h>

static void use_ours(void)
{
	ptw_real_init();
	ptw_threading.pthread_create = ptw_life_create;
	ptw_threading.pthread_join = ptw_life_join;
	ptw_threading.pthread_tryjoin_np = ptw_life_tryjoin;
	ptw_threading.pthread_timedjoin_np = ptw_life_timedjoin;
	ptw_threading.pthread_clockjoin_np = ptw_life_clockjoin;
	ptw_threading.pthread_detach = ptw_life_detach;
	ptw_threading.pthread_exit = ptw_life_exit;
	ptw_threading.thrd_create = ptw_life_create11;
	ptw_threading.thrd_join = ptw_life_join11;
	ptw_threading.thrd_detach = ptw_life_detach11;
	ptw_threading.thrd_exit = ptw_life_exit11;
	ptw_threading.fork = ptw_program_fork;
	ptw_threading.pthread_cancel = ptw_control_cancel;
	ptw_threading.pthread_kill = ptw_control_kill;
	ptw_psync_mutex_use(&ptw_threading);
	ptw_psync_cond_use(&ptw_threading);
	ptw_psync_other_use(&ptw_threading);
}

static bool single_threaded(void)
{
	struct stat status;
	return PTW_SYS(SYS_newfstatat, -100 /* AT_FDCWD */, "/proc/self/task", &status, 0, 0, 0) != 0 ||
	       status.st_nlink <= 3;
}

static const char *set_up(void)
{
	bool all_locks = false;
	if (!single_threaded())
		return "a thread runs before main(): threads stay threads";
	if (!ptw_fork_knows_all())
		return "more than 256 fork handlers before main(): threads stay threads";
	if (ptw_spawn_init() != 0 || ptw_libc_locks_share(&all_locks) != 0 || ptw_loader_init() != 0)
		return "this C library is not one process mode knows: threads stay threads";
	if (!all_locks)
		ptw_notice(PTW_NOTICE_LIMIT, NULL, "this C library's locks of locales were not found: threads that use them at once may hang");
	ptw_shared->main_pid = (uint32_t)ptw_getpid();
	ptw_shared->main_parent = (uint32_t)PTW_SYS(SYS_getppid, 0, 0, 0, 0, 0, 0);
	ptw_shared->slots_high = ptw_shared->alive = 1;
	if (ptw_segments_init() != 0)
		return "no room to share the program's data: threads stay threads";
	ptw_pages_init_stacks();
	ptw_places_init();
	ptw_passed_init();
	return NULL;
}

/* NULL, or why threads stay threads. */
static const char *begin(void)
{
	uint64_t mask;
	/* glibc loads it when a thread first unwinds, and remembers that where all processes look */
	dlopen("libgcc_s.so.1", RTLD_NOW);
	ptw_block_signals(&mask);
	const char *why = set_up();
	if (!why) {
		struct ptw_slot *slot = &ptw_shared->slot[0];
		slot->handle = pthread_self();
		slot->state = PTW_SLOT_RUNNING;
		slot->stack = PTW_REGION + PTW_STACK_MARGIN;
		slot->stack_size = PTW_STACK_AREA - PTW_STACK_MARGIN;
		slot->given = slot->stack;
		slot->given_size = slot->told_size = slot->stack_size;
		slot->open_from = slot->open_to = slot->stack + slot->stack_size;
		ptw_slot_prepare(slot);
		ptw_slot_live(slot);
		slot->result = PTHREAD_CANCELED;
		slot->blocked = mask;
		ptw_control_init();
		ptw_dispositions_init();
		ptw_threads_share();
		use_ours();
		ptw_process_mode = true;
		ptw_self.top = slot->stack + slot->stack_size;
		ptw_thread_watch_end();
		ptw_pages_start();
	}
	ptw_restore_signals(&mask);
	return why;
}

bool ptw_threading_begin(void)
{
	if (!ptw_heap_is_ours())
		return false;
	ptw_own_work(PTW_OWN_WORK_BEGINS);
	const char *why = begin();
	ptw_own_work(PTW_OWN_WORK_ENDS);
	if (why)
		ptw_notice(PTW_NOTICE_FALLBACK, NULL, why);
	return !why;
}
