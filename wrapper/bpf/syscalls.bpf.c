// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * System calls of a tree of tasks, in two stages.
 *
 * sys_enter writes down the call in the task's own storage (it follows the task through execve, which may change its
 * tid), sys_exit completes the record and submits it. What a task had begun when it died is submitted by
 * sched_process_exit without an exit; exit and exit_group are submitted at once.
 *
 * A task is followed when it has a `struct task_state`. A new task gets one from its parent in sched_process_fork;
 * where that is impossible (no memory, or the raw_tp variant, which may not touch another task's storage) its tid is
 * left in `waiting` and it makes its own at its first system call. User space begins a tree the same way.
 *
 * Path arguments are read at enter. A page that is not present cannot be read here, but the kernel reads the string
 * in the call itself, so the same read is repeated at exit; for execve, which replaces the address space, the kernel's
 * own copy is taken in sched_process_exec.
 *
 * Every program exists twice: tp_btf (typed), and raw_tp for kernels that refuse that. User space loads one set.
 * Nothing here waits or loops without a bound; a program that cannot go on counts why.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "record.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

enum number {
	NUMBER_EXECVE = 59,
	NUMBER_EXIT = 60,
	NUMBER_EXIT_GROUP = 231,
	NUMBER_EXECVEAT = 322,
};

enum kernel_value {
	TS_COMPAT = 2,			/* thread_info.status: a 32-bit call */
	SIGKILL_BIT = 1 << 8,
	ERESTART_FIRST = -512,		/* ERESTARTSYS */
	ERESTART_LAST = -516,		/* ERESTART_RESTARTBLOCK */
	NAMESPACES = 8,			/* depth of pid namespaces looked through (the kernel allows 32) */
};

/* Parts of the kernel's types; the loader finds where they are in the kernel at hand. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct pt_regs {
	unsigned long r10, r9, r8, dx, si, di, orig_ax, ip;
};
struct thread_info {
	__u32 status;
};
typedef struct {
	unsigned long sig[1];
} sigset_t;
struct sigpending {
	sigset_t signal;
};
struct ns_common {
	unsigned int inum;
};
struct pid_namespace {
	struct ns_common ns;
};
struct upid {
	int nr;
	struct pid_namespace *ns;
};
struct pid {
	unsigned int level;
	struct upid numbers[1];		/* one a level, the outermost first */
};
struct signal_struct {
	struct pid *pids[4];
};
struct task_struct {
	struct thread_info thread_info;
	int pid;
	int tgid;
	struct pid *thread_pid;
	struct signal_struct *signal;
	struct sigpending pending;
};
struct linux_binprm {
	const char *filename;
};
#pragma clang attribute pop

/* Set before loading; what they switch off the verifier removes. */
const volatile __u64 cfg_wake = 1 << 18;		/* bytes in the ring at which the consumer is woken */
const volatile __u32 cfg_pid_namespace = 0;		/* inode of the recorder's; 0 for the initial one */
const volatile __u8 cfg_path[PTW_PATHS][PTW_NUMBERS] = {};	/* by number: 1 + the argument, 0 for none */

/* Shared with the consumer. */
struct ptw_cpu_counts counts[PTW_CPUS];
struct ptw_losses losses;
__u32 wake_pending;
__u32 waiting_tasks;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 25);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct ptw_task);
} tasks SEC(".maps");

/* The record of a call with paths, as it goes into the ring; only tasks that make such calls have one. */
struct text {
	struct ptw_syscall call;
	char bytes[PTW_PATHS * PTW_PATH_SLOT];
	__u32 used;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct text);
} texts SEC(".maps");

/* Tids of new tasks of the tree that have no state yet. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, __u32);
	__type(value, __u32);
} waiting SEC(".maps");

/* Keeps the compiler from proving a bound in a way the verifier cannot follow. */
#define KEEP(value) asm volatile("" : "+r"(value))

static __always_inline void count(__u64 *by_number, __u32 number)
{
	__u64 index = number;

	KEEP(index);
	if (index > PTW_NUMBERS)
		index = PTW_NUMBERS;
	__sync_fetch_and_add(&by_number[index], 1);
}

static __always_inline struct ptw_cpu_counts *my_counts(void)
{
	return &counts[bpf_get_smp_processor_id() & (PTW_CPUS - 1)];
}

/* The consumer sleeps until there is enough to do, or its timeout; one wake-up at a time is under way. */
static __always_inline void submit(void *record, __u64 size, __u32 number)
{
	__u64 flags = BPF_RB_NO_WAKEUP;

	if (!wake_pending && bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) >= cfg_wake) {
		wake_pending = 1;
		flags = BPF_RB_FORCE_WAKEUP;
	}
	if (bpf_ringbuf_output(&ring, record, size, flags))
		count(losses.ring_full, number);
	else
		__sync_fetch_and_add(&my_counts()->submitted, 1);
}

/* A pid's number in the recorder's namespace; 0 when it is not in there. */
static __always_inline int number_in(struct pid *pid)
{
	struct upid one = {};
	__u32 level = BPF_CORE_READ(pid, level);
	void *numbers = (void *)__builtin_preserve_access_index(&pid->numbers);

	for (__u32 i = 1; i < NAMESPACES; i++) {
		if (i > level)
			break;
		if (bpf_probe_read_kernel(&one, sizeof(one), numbers + i * sizeof(one)))
			break;
		if (BPF_CORE_READ(one.ns, ns.inum) == cfg_pid_namespace)
			return one.nr;
	}
	return 0;
}

/* Ids as the recorder sees them. */
static __always_inline void fill_ids(struct ptw_record *head, struct task_struct *task)
{
	head->pid = task->tgid;
	head->tid = task->pid;
	if (cfg_pid_namespace) {
		head->tid = number_in(BPF_CORE_READ(task, thread_pid));
		head->pid = number_in(BPF_CORE_READ(task, signal, pids[1]));
	}
}

/* Typed programs read the registers directly, raw ones by copying. */
enum access { TYPED, RAW };

#define REGISTER(access, regs, field) ((access) == TYPED ? (regs)->field : BPF_CORE_READ(regs, field))

static __always_inline void fill_call(struct ptw_syscall *call, struct task_struct *task, struct pt_regs *regs,
				      int number, enum access access)
{
	call->head.kind = PTW_RECORD_SYSCALL;
	call->head.flags = 0;
	call->head.number = number;
	fill_ids(&call->head, task);
	call->t_exit = 0;
	call->result = 0;
	call->ip = REGISTER(access, regs, ip);
	call->args[0] = REGISTER(access, regs, di);
	call->args[1] = REGISTER(access, regs, si);
	call->args[2] = REGISTER(access, regs, dx);
	call->args[3] = REGISTER(access, regs, r10);
	call->args[4] = REGISTER(access, regs, r8);
	call->args[5] = REGISTER(access, regs, r9);
}

/* Take the state of a task that its parent could not give one. Its call under way, if any, is not recorded. */
static __always_inline struct ptw_task *adopt(struct task_struct *task)
{
	__u32 tid = task->pid;
	struct ptw_task *state;

	if (!waiting_tasks || !bpf_map_lookup_elem(&waiting, &tid))
		return 0;
	state = bpf_task_storage_get(&tasks, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!state)
		return 0;
	state->newborn = 1;
	if (!bpf_map_delete_elem(&waiting, &tid))
		__sync_fetch_and_add(&waiting_tasks, -1);
	return state;
}

static __always_inline void leave_waiting(__u32 tid)
{
	__u32 one = 1;

	if (bpf_map_update_elem(&waiting, &tid, &one, BPF_ANY))
		__sync_fetch_and_add(&losses.tasks, 1);
	else
		__sync_fetch_and_add(&waiting_tasks, 1);
}

/* --- paths --------------------------------------------------------------------------------------------------- */

enum source { FROM_USER, FROM_KERNEL };

/* Read path `i` behind what is there. Returns 0, or -1 when the memory could not be read. */
static __always_inline int read_path(struct ptw_task *state, struct text *text, __u32 i, const void *pointer,
				     enum source source)
{
	struct ptw_path *path = &state->call.path[i];
	__u64 used = text->used;
	long size;

	KEEP(used);
	if (used > PTW_PATH_SLOT)
		return -1;
	path->offset = used;
	if (source == FROM_USER)
		size = bpf_probe_read_user_str(text->bytes + used, PTW_PATH_SIZE + 1, pointer);
	else
		size = bpf_probe_read_kernel_str(text->bytes + used, PTW_PATH_SIZE + 1, pointer);
	if (size <= 0)
		return -1;
	path->size = size - 1;
	path->state = size > PTW_PATH_SIZE ? PTW_PATH_TRUNCATED : PTW_PATH_READ;
	text->used = (used + size + 7) & ~7ull;
	return 0;
}

/* The task's text storage, emptied if what is there is not this call's; NULL when there is no memory. */
static __always_inline struct text *take_text(struct ptw_task *state, struct task_struct *task)
{
	struct text *text = bpf_task_storage_get(&texts, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (text && !state->has_text)
		text->used = 0;
	if (text)
		state->has_text = 1;
	return text;
}

static __always_inline void read_paths_at_enter(struct ptw_task *state, struct task_struct *task)
{
	struct text *text = 0;
	__u64 number = state->call.head.number;

	state->retry = 0;
	state->has_text = 0;
#pragma unroll
	for (__u32 i = 0; i < PTW_PATHS; i++) {
		struct ptw_path *path = &state->call.path[i];
		__u64 argument;
		const void *pointer;

		path->state = PTW_PATH_NONE;
		KEEP(number);
		argument = number < PTW_NUMBERS ? cfg_path[i][number] : 0;
		KEEP(argument);
		if (argument < 1 || argument > 6)
			continue;
		path->argument = argument - 1;
		path->state = PTW_PATH_UNREADABLE;
		path->size = 0;
		path->offset = 0;
		pointer = (const void *)state->call.args[argument - 1];
		if (!pointer)
			continue;
		if (!text)
			text = take_text(state, task);
		if (!text || read_path(state, text, i, pointer, FROM_USER))
			state->retry |= 1u << i;
	}
}

static __always_inline void read_paths_at_exit(struct ptw_task *state, struct text *text)
{
#pragma unroll
	for (__u32 i = 0; i < PTW_PATHS; i++) {
		__u64 argument = state->call.path[i].argument;

		KEEP(argument);
		if ((state->retry & (1u << i)) && argument < 6)
			read_path(state, text, i, (const void *)state->call.args[argument], FROM_USER);
	}
	state->retry = 0;
}

/* --- the two stages ------------------------------------------------------------------------------------------ */

/* Submit the task's call and forget it; `again`: with another try at the paths that could not be read. */
static __always_inline void finish(struct ptw_task *state, struct task_struct *task, int again)
{
	struct text *text = 0;
	__u64 used;

	state->active = 0;
	if (state->has_text || (again && state->retry))
		text = take_text(state, task);
	if (!text) {
		submit(&state->call, sizeof(state->call), state->call.head.number);
		return;
	}
	if (again && state->retry)
		read_paths_at_exit(state, text);
	text->call = state->call;
	used = text->used;
	KEEP(used);
	if (used > sizeof(text->bytes))
		used = sizeof(text->bytes);
	submit(&text->call, sizeof(text->call) + used, state->call.head.number);
}

/* A call of a task that is not followed (yet). Returns its state when it is one of ours after all. */
static __always_inline struct ptw_task *stranger_enters(struct task_struct *task, int number)
{
	struct ptw_task *state = adopt(task);
	__u32 tid = task->pid;

	if (!state && waiting_tasks && bpf_map_lookup_elem(&waiting, &tid)) {
		__sync_fetch_and_add(&my_counts()->entered, 1);
		count(losses.no_memory, number);
	}
	return state;
}

static __always_inline int on_enter(struct pt_regs *regs, int number, enum access access)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct ptw_task *state = bpf_task_storage_get(&tasks, task, 0, 0);

	if (!state)
		state = stranger_enters(task, number);
	if (!state)
		return 0;
	if (state->active)
		count(losses.no_exit, state->call.head.number);
	state->active = 0;
	state->newborn = 0;
	__sync_fetch_and_add(&my_counts()->entered, 1);
	if (task->thread_info.status & TS_COMPAT) {
		__sync_fetch_and_add(&losses.compat, 1);
		return 0;
	}
	fill_call(&state->call, task, regs, number, access);
	read_paths_at_enter(state, task);
	state->active = 1;
	state->call.t_enter = bpf_ktime_get_ns();
	if (number == NUMBER_EXIT || number == NUMBER_EXIT_GROUP) {
		state->call.head.flags = PTW_SYSCALL_NO_EXIT;
		finish(state, task, 0);
	}
	return 0;
}

/* An exit without an enter. Returns 1 when it ends a call: one that was refused before it began. */
static __always_inline int begin_at_exit(struct ptw_task *state, struct task_struct *task, struct pt_regs *regs,
					 enum access access)
{
	int number = REGISTER(access, regs, orig_ax);

	if (state->newborn) {	/* the call that made the task, or that it was in when it was first followed */
		state->newborn = 0;
		return 0;
	}
	if (number < 0 || (task->thread_info.status & TS_COMPAT))
		return 0;
	__sync_fetch_and_add(&my_counts()->entered, 1);
	fill_call(&state->call, task, regs, number, access);
	read_paths_at_enter(state, task);
	state->call.head.flags = PTW_SYSCALL_NO_ENTER;
	return 1;
}

static __always_inline int on_exit(struct pt_regs *regs, long result, enum access access)
{
	__u64 now = bpf_ktime_get_ns();
	struct task_struct *task = bpf_get_current_task_btf();
	struct ptw_task *state = bpf_task_storage_get(&tasks, task, 0, 0);

	if (!state) {
		state = adopt(task);
		if (state)
			state->newborn = 0;	/* this was the exit */
		return 0;
	}
	if (!state->active) {
		if (!begin_at_exit(state, task, regs, access))
			return 0;
		state->call.t_enter = now;
	}
	if (result <= ERESTART_FIRST && result >= ERESTART_LAST && (task->pending.signal.sig[0] & SIGKILL_BIT)) {
		/* the task is being killed: it will not see this, nor make the call again */
		state->call.head.flags |= PTW_SYSCALL_NO_EXIT;
	} else {
		state->call.t_exit = now;
		state->call.result = result;
	}
	if (result == 0 && (state->call.head.number == NUMBER_EXECVE || state->call.head.number == NUMBER_EXECVEAT))
		state->retry = 0;	/* the pointers were into the old address space */
	finish(state, task, 1);
	return 0;
}

static __always_inline int on_exec(struct linux_binprm *binprm)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct ptw_task *state = bpf_task_storage_get(&tasks, task, 0, 0);
	struct text *text;

	if (!state || !state->active || !state->retry || state->call.head.number != NUMBER_EXECVE)
		return 0;
	text = take_text(state, task);
	if (text)
		read_path(state, text, 0, BPF_CORE_READ(binprm, filename), FROM_KERNEL);
	return 0;
}

static __always_inline int on_task_exit(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct ptw_task *state = bpf_task_storage_get(&tasks, task, 0, 0);
	__u32 tid = task->pid;

	if (!state) {
		if (waiting_tasks && !bpf_map_delete_elem(&waiting, &tid))
			__sync_fetch_and_add(&waiting_tasks, -1);
		return 0;
	}
	if (state->active) {
		state->call.head.flags |= PTW_SYSCALL_NO_EXIT;
		finish(state, task, 0);
	}
	return 0;
}

/* --- attached here: typed ------------------------------------------------------------------------------------ */

SEC("tp_btf/sys_enter")
int BPF_PROG(btf_enter, struct pt_regs *regs, long number)
{
	return on_enter(regs, number, TYPED);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(btf_exit, struct pt_regs *regs, long result)
{
	return on_exit(regs, result, TYPED);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(btf_fork, struct task_struct *parent, struct task_struct *child)
{
	struct ptw_task *state;

	if (!bpf_task_storage_get(&tasks, parent, 0, 0))
		return 0;
	state = bpf_task_storage_get(&tasks, child, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (state)
		state->newborn = 1;
	else
		leave_waiting(child->pid);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(btf_exec, struct task_struct *task, int old_pid, struct linux_binprm *binprm)
{
	return on_exec(binprm);
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(btf_task_exit, struct task_struct *task)
{
	return on_task_exit();
}

/* --- attached here: raw -------------------------------------------------------------------------------------- */

SEC("raw_tp/sys_enter")
int BPF_PROG(raw_enter, struct pt_regs *regs, long number)
{
	return on_enter(regs, number, RAW);
}

SEC("raw_tp/sys_exit")
int BPF_PROG(raw_exit, struct pt_regs *regs, long result)
{
	return on_exit(regs, result, RAW);
}

SEC("raw_tp/sched_process_fork")
int BPF_PROG(raw_fork, struct task_struct *parent, struct task_struct *child)
{
	/* the parent is the task that runs */
	if (bpf_task_storage_get(&tasks, (struct task_struct *)bpf_get_current_task_btf(), 0, 0))
		leave_waiting(BPF_CORE_READ(child, pid));
	return 0;
}

SEC("raw_tp/sched_process_exec")
int BPF_PROG(raw_exec, struct task_struct *task, int old_pid, struct linux_binprm *binprm)
{
	return on_exec(binprm);
}

SEC("raw_tp/sched_process_exit")
int BPF_PROG(raw_task_exit, struct task_struct *task)
{
	return on_task_exit();
}
