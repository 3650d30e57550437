/* SPDX-License-Identifier: MIT */
/*
 * The spawn recipe; spawn.h says what it gives.
 *
 * What must hold, in order, where a thread clones itself:
 *  - The helper's exit word is moved to the slot (set_tid_address): the kernel would clear the control block's tid,
 *    which is the new process's by then.
 *  - Helper and new process have the same stack, and both are on it for a moment: after the clone the helper leaves
 *    with nothing but registers.
 *  - glibc put the control block into its list of threads. It is taken out again: what glibc does with them (changing
 *    users, storage of libraries) would be done to threads of another process, or to none. All create under one lock.
 *  - The kernel forgets the list of robust mutexes at a clone: it is registered again.
 *  - start_thread reads the locale with all signals blocked; a page that is closed then would kill. So that is done
 *    once before, by the creator.
 *  - glibc calls the program's allocator for what the thread needs, which changes memory of the program's: that is
 *    committed before the process begins, or it would be given the same memory again. Nothing else is done meanwhile
 *    to the creator's copies: the helper waits for it.
 */
#define _GNU_SOURCE
#include "spawn.h"

#include "direct.h"
#include "pages.h"
#include "real.h"
#include "view.h"

#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdbool.h>

enum { TCB_SCAN = 1024 };

/* slot->helper, before it is the helper's tid. */
enum { HELPER_WAITS = 1, HELPER_GOES = 2 };

struct node {
	struct node *next, *prev;
};

static uint32_t tid_offset;
static void (*prepare_locale)(void);
static void (*free_tls)(void *, bool);

uint32_t *ptw_tcb_tid(pthread_t thread) { return (uint32_t *)((char *)thread + tid_offset); }

/* The links come just before the tid. */
static struct node *links_of(pthread_t thread) { return (struct node *)((char *)thread + tid_offset) - 1; }

static bool linked(const struct node *node) { return node->next->prev == node && node->prev->next == node; }

void ptw_spawn_unlink(pthread_t thread)
{
	struct node *node = links_of(thread);
	if (!linked(node))
		return; /* ptw_spawn_init saw that it is */
	node->next->prev = node->prev;
	node->prev->next = node->next;
	node->next = node->prev = node;
}

int ptw_spawn_init(void)
{
	const uint32_t *block = (const uint32_t *)pthread_self();
	uint32_t tid = (uint32_t)ptw_gettid(), matches = 0;
	for (uint32_t i = 16; i < TCB_SCAN / 4; i++) {
		if (block[i] == tid && matches++ == 0)
			tid_offset = i * 4;
	}
	prepare_locale = (void (*)(void))dlsym(RTLD_DEFAULT, "__ctype_init");
	free_tls = (void (*)(void *, bool))dlsym(RTLD_DEFAULT, "_dl_deallocate_tls");
	if (matches == 0 || tid_offset % 16)
		return -ENOSYS;
	const struct node *node = links_of(pthread_self());
	if (!node->next || !node->prev || ((uint64_t)node->next & 7) || ((uint64_t)node->prev & 7) || !linked(node))
		return -ENOSYS;
	ptw_direct_init();
	return 0;
}

static long clone_and_leave(struct ptw_slot *slot, uint64_t flags)
{
	long result;
	register uint64_t child_tid __asm__("r10") = (uint64_t)ptw_tcb_tid(pthread_self());
	register uint64_t tls __asm__("r8") = 0;
	__asm__ volatile("syscall\n"
			 "	test %%rax, %%rax\n"
			 "	jz 1f\n"
			 "	jns 2f\n"
			 "	neg %%eax\n"
			 "	mov %%eax, (%[error])\n"
			 "2:	mov %[exit], %%eax\n" /* the helper: its stack is the new process's now */
			 "	xor %%edi, %%edi\n"
			 "	syscall\n"
			 "	ud2\n"
			 "1:\n"
			 : "=a"(result)
			 : "a"((long)SYS_clone), "D"(flags), "S"(0l), "d"(child_tid), "r"(child_tid), "r"(tls),
			   [error] "r"(&slot->error), [exit] "i"(SYS_exit)
			 : "rcx", "r11", "memory");
	return result;
}

static void wait_for_creator(struct ptw_slot *slot)
{
	while (__atomic_load_n(&slot->helper, __ATOMIC_ACQUIRE) == HELPER_WAITS)
		ptw_shared_wait(&slot->helper, HELPER_WAITS, NULL);
}

/* On frames below thread-local storage's last page. */
static __attribute__((noinline)) void *proceed(struct ptw_slot *slot)
{
	uint64_t flags = CLONE_FILES | CLONE_FS | CLONE_IO | CLONE_SYSVSEM | CLONE_CHILD_SETTID | CLONE_PARENT_SETTID;
	if (slot->creator != ptw_shared->main_slot)
		flags |= CLONE_PARENT; /* all are children of the main process */
	wait_for_creator(slot);
	uint32_t tid = (uint32_t)PTW_SYS(SYS_set_tid_address, &slot->helper, 0, 0, 0, 0, 0);
	slot->helper_tid = tid;
	PTW_SYS(SYS_get_robust_list, 0, &slot->robust, &slot->robust_size, 0, 0, 0);
	__atomic_store_n(&slot->helper, tid, __ATOMIC_RELEASE);
	clone_and_leave(slot, flags);
	return ptw_thread_begin(slot);
}

/* What the new process inherits: its creator may change it as soon as the thread can be named. */
static void schedule(const struct ptw_slot *slot)
{
	struct sched_param parameter = {slot->priority};
	if (slot->scheduled)
		PTW_SYS(SYS_sched_setscheduler, 0, slot->policy, &parameter, 0, 0, 0);
	if (slot->pinned)
		PTW_SYS(SYS_sched_setaffinity, 0, sizeof slot->affinity, slot->affinity, 0, 0, 0);
}

static void *helper(void *argument)
{
	struct ptw_slot *slot = argument;
	uint64_t frame = (uint64_t)__builtin_frame_address(0);
	slot->open_from = frame & ~(PTW_PAGE - 1);
	slot->open_to = slot->stack + slot->stack_size;
	volatile char *below = alloca(frame - slot->open_from + 256);
	below[0] = 0;
	slot->handle = pthread_self();
	schedule(slot);
	return proceed(slot);
}

/* A process without a helper: below the page where glibc put what it keeps on the stack. */
static void *process(void *argument)
{
	struct ptw_slot *slot = argument;
	uint64_t frame = (uint64_t)__builtin_frame_address(0);
	volatile char *below = alloca(frame > slot->open_from ? frame - slot->open_from + 256 : 16);
	below[0] = 0;
	ptw_direct_begun(slot);
	return ptw_thread_begin(slot);
}

static int create(pthread_t *ret, const pthread_attr_t *attributes, struct ptw_slot *slot)
{
	int error = slot->scheduled ? ENOSYS : ptw_direct_create(ret, attributes, process, slot);
	if (error != ENOSYS)
		return error;
	__atomic_store_n(&slot->helper, HELPER_WAITS, __ATOMIC_RELEASE);
	error = GLIBC(pthread_create)(ret, attributes, helper, slot);
	if (error)
		return error;
	ptw_view_exchange();
	__atomic_store_n(&slot->helper, HELPER_GOES, __ATOMIC_RELEASE);
	ptw_shared_wake(&slot->helper, 1);
	return 0;
}

int ptw_spawn(struct ptw_slot *slot)
{
	pthread_attr_t attributes;
	pthread_t handle;
	if (prepare_locale)
		prepare_locale();
	pthread_attr_init(&attributes);
	int error = pthread_attr_setstack(&attributes, (void *)slot->given, slot->given_size);
	ptw_pages_lend(slot);
	ptw_lock(&ptw_shared->create_lock);
	if (error == 0)
		error = create(&handle, &attributes, slot);
	if (error == 0)
		ptw_spawn_unlink(handle);
	ptw_unlock(&ptw_shared->create_lock);
	pthread_attr_destroy(&attributes);
	if (error)
		return error;
	uint32_t word;
	while ((word = __atomic_load_n(&slot->helper, __ATOMIC_ACQUIRE)) != 0)
		ptw_shared_wait(&slot->helper, word, NULL);
	if (!slot->error)
		slot->pid = *ptw_tcb_tid(handle); /* the thread can be named from now on, though it may not run yet */
	ptw_pages_lent(slot);
	return (int)slot->error;
}

void ptw_spawn_forget(struct ptw_slot *slot)
{
	if (free_tls && slot->handle)
		free_tls((void *)slot->handle, false);
}
