/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What all programs use: configuration, counters, the ring, the tasks' state, who a task is.
 *
 * A task is followed when it has a `struct ptw_task`. A new task gets one from its parent in sched_process_fork;
 * where that is impossible (no memory, or the raw_tp variant, which may not touch another task's storage) its tid is
 * left in `waiting` and it makes its own at its first system call. User space begins a tree the same way.
 */
#ifndef PTW_COMMON_BPF_H
#define PTW_COMMON_BPF_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "record.h"
#include "kernel.h"

/* Set before loading; what they switch off the verifier removes. */
const volatile __u64 cfg_wake = 1 << 18;		/* bytes in the ring at which the consumer is woken */
const volatile __u32 cfg_pid_namespace = 0;		/* inode of the recorder's; 0 for the initial one */
const volatile __u32 cfg_all = 0;			/* follow every task of the machine but the recorder's */
const volatile __u32 cfg_self = 0;			/* process of the recorder, in its namespace; 0 none */
const volatile __u32 cfg_capture = 0;			/* most bytes kept of a buffer */
const volatile __u32 cfg_frames = 0;			/* most frames of a call stack */
const volatile struct ptw_description cfg_descriptions[PTW_NUMBERS] = {};

/* Shared with the consumer. */
struct ptw_cpu_counts counts[PTW_CPUS];
struct ptw_losses losses;
struct ptw_bank banks[PTW_BANKS];
__u32 generation;		/* of the filter rules, never 0; its lowest bit is the bank in use */
__u32 enabled;			/* all programs are attached: calls may begin */
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

/* The record of a call with captures, as it goes into the ring; only tasks that make such calls have one. */
struct text {
	struct ptw_syscall call;
	char bytes[PTW_ROOM + PTW_SLACK];
	__u32 used;
	__u32 full;			/* something did not fit */
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

/* Processes of the tree that a signal ended, as the recorder has their pids: which. The last ones, if there are too many. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 12);
	__type(key, __u32);
	__type(value, __u32);
} killed SEC(".maps");

/* ptw_task.active */
enum active { NO_CALL, RECORDED, PASSED_OVER };

/* Keeps the compiler from proving a bound in a way the verifier cannot follow. */
#define KEEP(value) asm volatile("" : "+r"(value))

/* What is known of a call number; NULL: nothing. Masked where it is used: Linux before 6.4 forgets the bound of a number
 * that has been on the stack. */
static __always_inline const volatile struct ptw_description *described(__u64 number)
{
	const volatile struct ptw_description *found = 0;

	KEEP(number);
	if (number < PTW_NUMBERS) {
		KEEP(number);
		found = &cfg_descriptions[number & (PTW_NUMBERS - 1)];
	}
	KEEP(found);	/* and it is the pointer that is compared with NULL, not the number again */
	return found;
}

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

/*
 * Calls are counted without a locked instruction, which would wait for the stores to the ring: the programs that count
 * them run in the context of the task that calls, where none interrupts another of its processor.
 */
static __always_inline void count_call(__u64 *of_kinds)
{
	if (bpf_get_smp_processor_id() < PTW_CPUS)
		of_kinds[PTW_RECORD_SYSCALL]++;
	else
		__sync_fetch_and_add(&of_kinds[PTW_RECORD_SYSCALL], 1);
}

static __always_inline void count_produced(__u32 kind)
{
	__sync_fetch_and_add(&my_counts()->produced[kind & (PTW_RECORD_EVENTS - 1)], 1);
}

/* The consumer sleeps until there is enough to do, or its timeout; one wake-up at a time is under way. */
static __always_inline __u64 wake_flags(void)
{
	if (wake_pending || bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) < cfg_wake)
		return BPF_RB_NO_WAKEUP;
	wake_pending = 1;
	return BPF_RB_FORCE_WAKEUP;
}

static __always_inline void submit_call(void *record, __u64 size, __u32 number)
{
	if (bpf_ringbuf_output(&ring, record, size, wake_flags()))
		count(losses.ring_full, number);
	else
		count_call(my_counts()->submitted);
}

/* A call without captures: its size is known, which spares a copy of unknown size. */
static __always_inline void submit_plain(const struct ptw_syscall *call)
{
	struct ptw_syscall *record = bpf_ringbuf_reserve(&ring, sizeof(*record), 0);

	if (!record) {
		count(losses.ring_full, call->head.number);
		return;
	}
	*record = *call;
	bpf_ringbuf_submit(record, wake_flags());
	count_call(my_counts()->submitted);
}

/* An event of another kind, just now. */
static __always_inline void submit_event(void *record, __u64 size, __u32 kind)
{
	count_produced(kind);
	if (bpf_ringbuf_output(&ring, record, size, wake_flags()))
		__sync_fetch_and_add(&losses.events[kind & (PTW_RECORD_EVENTS - 1)], 1);
	else
		__sync_fetch_and_add(&my_counts()->submitted[kind & (PTW_RECORD_EVENTS - 1)], 1);
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

/* Ids of the task that runs, as the recorder sees them. */
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

/* Begin to follow the task that runs. Its call under way, if any, is not recorded. */
static __always_inline struct ptw_task *begin_task(struct task_struct *task)
{
	struct ptw_task *state = bpf_task_storage_get(&tasks, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (state)
		state->newborn = 1;
	return state;
}

/* Take the state of a task that its parent could not give one. */
static __always_inline struct ptw_task *adopt(struct task_struct *task)
{
	__u32 tid = task->pid;
	struct ptw_task *state;

	if (cfg_all) {
		struct ptw_record ids;

		fill_ids(&ids, task);
		return cfg_self && ids.pid == cfg_self ? 0 : begin_task(task);
	}
	if (!waiting_tasks || !bpf_map_lookup_elem(&waiting, &tid))
		return 0;
	state = begin_task(task);
	if (state && !bpf_map_delete_elem(&waiting, &tid))
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

#endif
