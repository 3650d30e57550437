/* SPDX-License-Identifier: MIT */
/*
 * The program's fork; fork.h says what it gives.
 *
 * Parent and child share their stack until the child has copied the memory. So both are on another one meanwhile, a
 * private mapping that the clone itself copies; the parent goes back when the child says that it is done. glibc's fork
 * cannot be used: it writes to the C library's data and the thread control block, shared at that time. What it does for
 * a child is done here: handlers, tid, robust list, and locks of stdio streams, which others may have held.
 */
#define _GNU_SOURCE
#include "fork.h"

#include "children.h"
#include "commit.h"
#include "dispositions.h"
#include "errand.h"
#include "files.h"
#include "handshake.h"
#include "heap.h"
#include "herald.h"
#include "loader.h"
#include "pages.h"
#include "pending.h"
#include "places.h"
#include "process.h"
#include "program.h"
#include "real.h"
#include "region.h"
#include "revoke.h"
#include "segments.h"
#include "servant.h"
#include "spawn.h"
#include "timers.h"
#include "warden.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { HANDLERS = 256, STACK = 64 << 10 };

struct between {
	long (*function)(void *);
	void *argument;
};

/* --- handlers --- */

struct handlers {
	void (*prepare)(void), (*parent)(void), (*child)(void);
	void *library;
};

/* Of process mode, in the order in which they were registered. */
struct ptw_fork_handler {
	struct ptw_fork_handler *next, *before;
	struct handlers handlers;
};

/* Those that came before it, when there was one thread. */
static struct handlers early[HANDLERS];
static uint32_t early_count;

int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *library);

/* Whichever thread registers them, they are the program's. */
static int add(const struct handlers *handlers)
{
	struct ptw_meta *meta = ptw_shared;
	struct ptw_fork_handler *added = ptw_open_take(sizeof *added);
	uint64_t mask;
	if (!added)
		return ENOMEM;
	*added = (struct ptw_fork_handler){NULL, NULL, *handlers};
	ptw_lock_masked(&meta->fork_handlers_lock, &mask);
	added->before = meta->last_fork_handler;
	__atomic_store_n(added->before ? &added->before->next : &meta->fork_handlers, added, __ATOMIC_RELEASE);
	__atomic_store_n(&meta->last_fork_handler, added, __ATOMIC_RELEASE);
	ptw_unlock_masked(&meta->fork_handlers_lock, &mask);
	return 0;
}

/* glibc has the early ones, too, for when process mode could not begin. */
PTW_EXPORT int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *library)
{
	const struct handlers handlers = {prepare, parent, child, library};
	if (ptw_process_mode)
		return add(&handlers);
	uint32_t at = __atomic_fetch_add(&early_count, 1, __ATOMIC_RELAXED);
	if (at < HANDLERS)
		early[at] = handlers;
	return GLIBC(__register_atfork)(prepare, parent, child, library);
}

extern void *__dso_handle __attribute__((visibility("hidden")));

/* Ours are always run: without them the child would write to what its parent logs. */
static void run(const struct handlers *handlers, void (*function)(void), bool programs)
{
	if (function && (programs || handlers->library == __dso_handle))
		function();
}

bool ptw_fork_knows_all(void) { return early_count <= HANDLERS; }

static void run_prepare(bool programs)
{
	for (struct ptw_fork_handler *at = __atomic_load_n(&ptw_shared->last_fork_handler, __ATOMIC_ACQUIRE); at; at = at->before)
		run(&at->handlers, at->handlers.prepare, programs);
	for (uint32_t i = early_count; i-- > 0;)
		run(&early[i], early[i].prepare, programs);
}

static void run_after(bool child, bool programs)
{
	for (uint32_t i = 0; i < early_count; i++)
		run(&early[i], child ? early[i].child : early[i].parent, programs);
	for (struct ptw_fork_handler *at = __atomic_load_n(&ptw_shared->fork_handlers, __ATOMIC_ACQUIRE); at; at = at->next)
		run(&at->handlers, child ? at->handlers.child : at->handlers.parent, programs);
}

/* --- the child --- */

/* Streams as glibc lays them out: the lock is a word, a count and an owner. */
static void free_streams(void)
{
	extern FILE *_IO_list_all;
	for (FILE *file = _IO_list_all; file; file = *(FILE **)((char *)file + 0x68)) {
		uint32_t *lock = *(uint32_t **)((char *)file + 0x88);
		if (lock && *(uint64_t *)(lock + 2) != (uint64_t)pthread_self())
			memset(lock, 0, 16);
	}
}

/* Everybody else is not here. */
static void be_alone(void)
{
	struct ptw_meta *meta = ptw_shared;
	meta->main_slot = ptw_slot_index;
	meta->main_pid = (uint32_t)ptw_getpid();
	meta->main_parent = (uint32_t)PTW_SYS(SYS_getppid, 0, 0, 0, 0, 0, 0);
	meta->lock = meta->handshake_lock = meta->units_lock = meta->segments_lock = meta->untracked_lock = 0;
	meta->open_lock = meta->files_lock = meta->once_lock = meta->orphans_lock = meta->break_lock = 0;
	meta->create_lock = meta->semaphores_lock = meta->fork_handlers_lock = 0;
	ptw_loader_alone();
	ptw_revoked_ranges->lock = 0;
	ptw_page_locks_forget();
	meta->alive = 1;
	for (uint32_t i = 0; i < meta->slots_high; i++) {
		if (i == ptw_slot_index)
			continue;
		meta->slot[i].state = PTW_SLOT_FREE;
		meta->slot[i].open_from = meta->slot[i].open_to = 0;
		memset((void *)(PTW_META_HEAPS + i * 4096ull), 0, 4096); /* may have been in the midst of a change */
	}
	struct ptw_slot *slot = ptw_slot();
	slot->requests = slot->mail_lock = slot->mail = slot->overflow = slot->detached = slot->joined = 0;
	*ptw_tcb_tid(pthread_self()) = (uint32_t)ptw_gettid();
	slot->handle = pthread_self();
	PTW_SYS(SYS_set_robust_list, slot->robust, slot->robust_size, 0, 0, 0, 0);
	*(uint64_t *)slot->robust = slot->robust; /* an empty list */
	ptw_slot_prepare(slot);
	ptw_slot_live(slot);
	PTW_SYS(SYS_prctl, PR_SET_PDEATHSIG, 0, 0, 0, 0, 0);
	ptw_warden_forget();
	ptw_program_forked();
	ptw_herald_forget();
	ptw_errands_forget();
	ptw_pending_forget();
	ptw_places_forked();
	ptw_disposition_table->lock = 0;
	ptw_timers_forget();
	ptw_children_forget();
	slot->waiting = slot->handed = 0;
}

static void unshare_memory(void)
{
	struct ptw_slot *slot = ptw_slot();
	int fd = ptw_region_copy();
	uint32_t *done = &slot->fork_done;
	if (fd < 0)
		ptw_fork_failed(fd);
	__atomic_store_n(done, 1, __ATOMIC_RELEASE);
	ptw_shared_wake(done, 1);
	if (ptw_region_replace(fd) != 0 || ptw_segments_remap() != 0 || ptw_files_unshare() != 0)
		ptw_fork_failed(-ENOMEM);
	be_alone();
	ptw_pages_begin(slot);
}

/* --- both --- */

__asm__(".pushsection .text.ptw_call_on,\"ax\",@progbits\n"
	".hidden ptw_call_on\n"
	".globl ptw_call_on\n"
	".type ptw_call_on, @function\n"
	"ptw_call_on:\n"
	".cfi_startproc\n"
	"	pushq %rbp\n"
	".cfi_def_cfa_offset 16\n"
	".cfi_offset rbp, -16\n"
	"	movq %rsp, %rbp\n"
	".cfi_def_cfa_register rbp\n"
	"	movq %rdx, %rsp\n"
	"	movq %rdi, %rax\n"
	"	movq %rsi, %rdi\n"
	"	call *%rax\n"
	"	movq %rbp, %rsp\n"
	"	popq %rbp\n"
	".cfi_def_cfa rsp, 8\n"
	"	ret\n"
	".cfi_endproc\n"
	".size ptw_call_on, .-ptw_call_on\n"
	".popsection\n");

void ptw_fork_failed(long error)
{
	char line[100];
	snprintf(line, sizeof line, "no memory for a copy of the program (error %ld): its child ends", -error);
	ptw_say(line);
	PTW_SYS(SYS_exit_group, 127, 0, 0, 0, 0, 0);
	__builtin_unreachable();
}

/* On a private stack, in the thread's process or in one in between. Locks of the allocator are held, so that the copy is
 * whole. */
static long split(void *unused)
{
	struct ptw_slot *slot = ptw_slot();
	const struct timespec pause = {0, 50000000};
	long parent = ptw_getpid();
	(void)unused;
	slot->fork_done = 0;
	long pid = PTW_SYS(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
	if (pid == 0) {
		bool stays = ptw_is_main();
		unshare_memory();
		while (!stays && PTW_SYS(SYS_getppid, 0, 0, 0, 0, 0, 0) == parent)
			ptw_sleep_ns(20000);
		ptw_shared->main_parent = (uint32_t)PTW_SYS(SYS_getppid, 0, 0, 0, 0, 0, 0);
	}
	while (pid > 0 && !__atomic_load_n(&slot->fork_done, __ATOMIC_ACQUIRE)) {
		siginfo_t info = {0};
		ptw_shared_wait(&slot->fork_done, 0, &pause);
		if (PTW_SYS(SYS_waitid, P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT, 0, 0) == 0 && info.si_pid)
			break;
	}
	return pid;
}

void ptw_fork_adopts(bool yes)
{
	if (yes)
		ptw_lock(&ptw_shared->orphans_lock);
	struct ptw_errand *errand = ptw_errand_begin();
	ptw_errand_run(errand, SYS_prctl, PR_SET_CHILD_SUBREAPER, yes, 0, 0, 0);
	ptw_errand_end(errand);
	if (!yes)
		ptw_unlock(&ptw_shared->orphans_lock);
}

/* On a private stack. */
static long go_between(void *data)
{
	const struct between *between = data;
	struct ptw_slot *slot = ptw_slot();
	siginfo_t info;
	slot->fork_result = -EAGAIN;
	long pid = PTW_SYS(SYS_clone, CLONE_FILES | CLONE_FS | CLONE_IO | CLONE_SYSVSEM, 0, 0, 0, 0, 0);
	if (pid == 0) {
		char name[16] = "";
		PTW_SYS(SYS_prctl, PR_GET_NAME, name, 0, 0, 0, 0);
		PTW_SYS(SYS_prctl, PR_SET_NAME, PTW_SERVANT_NAME, 0, 0, 0, 0); /* nobody's thread */
		long result = between->function(between->argument);
		if (result == 0) { /* the child */
			PTW_SYS(SYS_prctl, PR_SET_NAME, name, 0, 0, 0, 0);
			return 0;
		}
		slot->fork_result = result;
		PTW_SYS(SYS_exit_group, 0, 0, 0, 0, 0, 0);
	}
	while (pid > 0 && PTW_SYS(SYS_waitid, P_PID, pid, &info, WEXITED | __WALL, 0, 0) == -EINTR)
		;
	return pid < 0 ? pid : slot->fork_result;
}

long ptw_fork_on_stack(long (*function)(void *), void *argument)
{
	long stack = PTW_SYS(SYS_mmap, 0, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stack < 0 && stack >= -4095)
		return -ENOMEM;
	long result = ptw_call_on(function, argument, (uint64_t)stack + STACK - 64);
	PTW_SYS(SYS_munmap, stack, STACK, 0, 0, 0, 0);
	return result;
}

long ptw_fork_in_between(long (*function)(void *), void *argument)
{
	uint64_t mask = PTW_ALL_BUT_FAULTS, before;
	struct between between = {function, argument};
	PTW_SYS(SYS_rt_sigprocmask, SIG_BLOCK, &mask, &before, sizeof mask, 0, 0);
	ptw_fork_adopts(true);
	long result = ptw_fork_on_stack(go_between, &between);
	if (result != 0)
		ptw_fork_adopts(false);
	PTW_SYS(SYS_rt_sigprocmask, SIG_SETMASK, &before, 0, sizeof before, 0, 0);
	return result;
}

/* Several threads may hold one of them; these come before any that is taken in the child's making. */
static long split_locked(void *between)
{
	uint32_t *locks[] = {&ptw_shared->fork_handlers_lock, &ptw_shared->semaphores_lock,
			     &ptw_shared->lock,		      &ptw_shared->units_lock,
			     &ptw_shared->open_lock,	      &ptw_shared->files_lock,
			     &ptw_disposition_table->lock,    &ptw_pending_table->lock};
	for (unsigned i = 0; i < sizeof locks / sizeof *locks; i++)
		ptw_lock(locks[i]);
	long pid = split(between);
	for (unsigned i = 0; pid != 0 && i < sizeof locks / sizeof *locks; i++)
		ptw_unlock(locks[i]);
	return pid;
}

static pid_t fork_program(bool handlers_of_program)
{
	uint64_t mask = PTW_ALL_BUT_FAULTS, before;
	run_prepare(handlers_of_program);
	ptw_pages_boundary(); /* what is copied is the shared memory */
	PTW_SYS(SYS_rt_sigprocmask, SIG_BLOCK, &mask, &before, sizeof mask, 0, 0);
	struct ptw_slot *slot = ptw_slot();
	PTW_SYS(SYS_get_robust_list, 0, &slot->robust, &slot->robust_size, 0, 0, 0);
	long pid = ptw_is_main() ? ptw_fork_on_stack(split_locked, NULL) : ptw_fork_in_between(split_locked, NULL);
	if (pid == 0)
		free_streams();
	PTW_SYS(SYS_rt_sigprocmask, SIG_SETMASK, &before, 0, sizeof before, 0, 0);
	run_after(pid == 0, handlers_of_program);
	if (pid < 0) {
		errno = (int)-pid;
		return -1;
	}
	return (pid_t)pid;
}

pid_t ptw_program_fork(void) { return fork_program(true); }

pid_t ptw_program_fork_bare(void) { return fork_program(false); }
