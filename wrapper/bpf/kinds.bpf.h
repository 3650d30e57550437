/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Events beside the call itself: blocking, changes of the number of descriptors, writes, signals. */
#ifndef PTW_KINDS_BPF_H
#define PTW_KINDS_BPF_H

#include "capture.bpf.h"
#include "files.bpf.h"
#include "filter.bpf.h"

enum kinds_limit {
	WORDS_A_READ = 512,	/* of the bitmap of open descriptors: 32,768 of them */
	READS = 32,		/* at most: 1,048,576, the kernel's default limit (fs.nr_open) */
};

#define KIND(kind) (1u << (kind))

static __always_inline __u64 bits(__u64 word)
{
	word -= (word >> 1) & 0x5555555555555555ull;
	word = (word & 0x3333333333333333ull) + ((word >> 2) & 0x3333333333333333ull);
	word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0full;
	return word * 0x0101010101010101ull >> 56;
}

/* The set bits among the first `words` words in a text's bytes. */
__noinline __u64 count_bits(struct text *text, __u64 words)
{
	__u64 count = 0;

	if (!text)
		return 0;
	for (__u32 i = 0; i < WORDS_A_READ; i++) {
		if (i >= words)
			break;
		count += bits(((__u64 *)text->bytes)[i]);
	}
	return count;
}

/* Count the open descriptors. The table may grow meanwhile: a count is of one moment of each part. */
__noinline __u64 count_descriptors(struct text *text)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	__u64 words = BPF_CORE_READ(table, max_fds) / 64;
	unsigned long *bitmap = BPF_CORE_READ(table, open_fds);
	__u64 count = 0;

	if (!text)
		return 0;
	text->full = 0;
	for (__u32 i = 0; i < READS; i++) {
		__u64 now = words > WORDS_A_READ ? WORDS_A_READ : words;

		if (!words)
			break;
		KEEP(now);
		if (now > WORDS_A_READ)
			break;
		if (bpf_probe_read_kernel(text->bytes, now * 8, bitmap + i * WORDS_A_READ)) {
			text->full = 1;
			break;
		}
		count += count_bits(text, now);
		words -= now;
	}
	if (words)
		text->full = 1;
	return count;
}

/* The call's result is a descriptor. */
static __always_inline int returns_fd(struct ptw_syscall *call)
{
	__u64 number = call->head.number;

	if (number == NUMBER_FCNTL)
		return (__u32)call->args[1] == F_DUPFD || (__u32)call->args[1] == F_DUPFD_CLOEXEC;
	KEEP(number);
	return number < PTW_NUMBERS && cfg_descriptions[number].result_is_fd;
}

static __always_inline void emit_blocking(struct ptw_task *state, struct task_struct *task)
{
	struct ptw_blocking event = {.head = state->call.head};

	event.head.kind = PTW_RECORD_BLOCKING;
	event.head.flags = 0;
	event.t = state->call.t_enter;
	event.duration = state->call.t_exit - state->call.t_enter;
	event.run_delay = task->sched_info.run_delay - state->run_delay;
	submit_event(&event, sizeof(event), PTW_RECORD_BLOCKING);
}

static __always_inline void emit_fd_change(struct ptw_task *state, struct task_struct *task, __u32 operation,
					   __u32 fds)
{
	struct ptw_fd_change event = {.head = state->call.head};
	struct text *text = take_text(state, task);

	event.head.kind = PTW_RECORD_FD_CHANGE;
	event.head.flags = 0;
	event.t = state->call.t_exit;
	event.operation = operation;
	event.fd = -1;
	if (returns_fd(&state->call))
		event.fd = state->call.result;
	else if (operation == PTW_FD_CLOSE && fds == 1)
		event.fd = state->call.args[0];
	if (text) {
		event.open_fds = count_descriptors(text);
		event.complete = !text->full;
	}
	submit_event(&event, sizeof(event), PTW_RECORD_FD_CHANGE);
}

static __always_inline void emit_write(struct ptw_task *state)
{
	struct ptw_write event = {.head = state->call.head};

	event.head.kind = PTW_RECORD_WRITE;
	event.head.flags = 0;
	event.t = state->call.t_enter;
	event.duration = state->call.t_exit - state->call.t_enter;
	event.bytes = state->call.result;
	event.file = state->call.file[0];
	event.fd = state->call.args[0];
	submit_event(&event, sizeof(event), PTW_RECORD_WRITE);
}

/* What a call that returned was, beside itself. Its own record is out of the text storage by now. */
static __always_inline void emit_kinds(struct ptw_task *state, struct task_struct *task)
{
	const volatile struct ptw_description *description;
	__u64 number = state->call.head.number;
	__u32 operation;

	if (state->pass & KIND(PTW_RECORD_BLOCKING))
		emit_blocking(state, task);
	KEEP(number);
	if (number >= PTW_NUMBERS)
		return;
	description = &cfg_descriptions[number];
	if ((state->pass & KIND(PTW_RECORD_WRITE)) && description->is_write)
		emit_write(state);
	operation = returns_fd(&state->call) ? PTW_FD_OPEN : description->fd_operation;
	if ((state->pass & KIND(PTW_RECORD_FD_CHANGE)) && operation && state->call.result >= 0)
		emit_fd_change(state, task, operation, description->fds);
}

static __always_inline int on_signal_sent(int signal, struct kernel_siginfo *info, struct task_struct *target,
					  int result)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct ptw_task *state = bpf_task_storage_get(&tasks, task, 0, 0);
	struct ptw_signal event = {};

	if (!state || !(state->judged & KIND(PTW_RECORD_SIGNAL)))
		return 0;
	event.head.kind = PTW_RECORD_SIGNAL;
	event.head.number = state->active == RECORDED ? state->call.head.number : ~0u;
	fill_ids(&event.head, task);
	event.t = bpf_ktime_get_ns();
	event.target_pid = BPF_CORE_READ(target, tgid);
	event.target_tid = BPF_CORE_READ(target, pid);
	if (cfg_pid_namespace) {
		event.target_pid = number_in(BPF_CORE_READ(target, signal, pids[1]));
		event.target_tid = number_in(BPF_CORE_READ(target, thread_pid));
	}
	event.signal = signal;
	if ((__u64)info > 1)	/* SEND_SIG_NOINFO, SEND_SIG_PRIV */
		event.code = BPF_CORE_READ(info, si_code);
	else if (info)
		event.code = 0x80;	/* SI_KERNEL */
	event.result = result;
	submit_event(&event, sizeof(event), PTW_RECORD_SIGNAL);
	return 0;
}

static __always_inline int on_signal_delivered(int signal, struct kernel_siginfo *info, struct k_sigaction *action)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct ptw_task *state = bpf_task_storage_get(&tasks, task, 0, 0);
	struct ptw_signal event = {};

	if (!state || !(state->judged & KIND(PTW_RECORD_SIGNAL)))
		return 0;
	event.head.kind = PTW_RECORD_SIGNAL;
	event.head.number = ~0u;
	fill_ids(&event.head, task);
	event.t = bpf_ktime_get_ns();
	event.delivered = 1;
	event.target_pid = event.head.pid;
	event.target_tid = event.head.tid;
	event.signal = signal;
	event.code = BPF_CORE_READ(info, si_code);
	event.result = -1;
	event.handler = (__u64)BPF_CORE_READ(action, sa.sa_handler);
	submit_event(&event, sizeof(event), PTW_RECORD_SIGNAL);
	return 0;
}

#endif
