/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * System calls, in two stages: sys_enter writes down the call in the task's own storage (it follows the task through
 * execve, which may change its tid), sys_exit completes the record and submits it. What a task had begun when it died
 * is submitted by sched_process_exit without an exit; exit and exit_group are submitted at once.
 */
#ifndef PTW_CALLS_BPF_H
#define PTW_CALLS_BPF_H

#include "kinds.bpf.h"
#include "quick.bpf.h"

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

/* What the first two descriptors among the arguments refer to. */
static __always_inline void fill_files(struct ptw_task *state)
{
	__u64 number = state->call.head.number;
	__u32 fds = 0;
	__u32 at = 0;

	state->call.file[0] = state->call.file[1] = state->call.file[2] = 0;
	KEEP(number);
	if (number < PTW_NUMBERS)
		fds = cfg_descriptions[number].fds;
	if (!fds)
		return;
	for (__u32 i = 0; i < PTW_ARGUMENTS && at < PTW_FILES - 1; i++) {
		if (!(fds & (1u << i)))
			continue;
		state->call.file[at & 1] = file_of(state, state->call.args[i]);
		at++;
	}
}

/* Submit the task's call and forget it; `again`: it returned, and what can only be read now is read. */
static __always_inline void finish(struct ptw_task *state, struct task_struct *task, int again)
{
	struct text *text;
	__u64 used;

	state->active = NO_CALL;
	if (!(state->pass & KIND(PTW_RECORD_SYSCALL)))
		return;
	if (is_quick(state->call.head.number)) {
		quick_at_exit(state, again);
		used = state->used;
		KEEP(used);
		if (used > PTW_QUICK_ROOM)
			used = PTW_QUICK_ROOM;
		submit_call(&state->call, sizeof(state->call) + used, state->call.head.number);
		return;
	}
	text = capture_at_exit(state, task, again);
	if (!text) {
		submit_plain(&state->call);
		return;
	}
	if (text->full)
		state->call.head.flags |= PTW_SYSCALL_NO_ROOM;
	text->call = state->call;
	used = text->used;
	KEEP(used);
	if (used > sizeof(text->bytes))
		used = sizeof(text->bytes);
	submit_call(&text->call, sizeof(text->call) + used, state->call.head.number);
}

/* A call of a task that is not followed (yet). Returns its state when it is one of ours after all. */
static __always_inline struct ptw_task *stranger_enters(struct task_struct *task, int number)
{
	struct ptw_task *state = adopt(task);
	__u32 tid = task->pid;

	if (!state && waiting_tasks && bpf_map_lookup_elem(&waiting, &tid)) {
		count_call(my_counts()->produced);
		count(losses.no_memory, number);
	}
	return state;
}

/* Begin a call: judge it, write it down. Returns 0 when nothing of it passes. */
static __always_inline __u32 begin_call(struct ptw_task *state, struct task_struct *task, struct pt_regs *regs,
					int number, enum access access)
{
	state->pass = verdict(state, task);
	if (!state->pass)
		return 0;
	if (state->pass & KIND(PTW_RECORD_SYSCALL))
		count_call(my_counts()->produced);
	if (task->thread_info.status & TS_COMPAT) {
		if (state->pass & KIND(PTW_RECORD_SYSCALL))
			__sync_fetch_and_add(&losses.compat, 1);
		return 0;
	}
	fill_call(&state->call, task, regs, number, access);
	if (state->pass & (KIND(PTW_RECORD_SYSCALL) | KIND(PTW_RECORD_WRITE)))
		fill_files(state);
	state->retry = 0;
	state->has_text = 0;
	if (state->pass & KIND(PTW_RECORD_SYSCALL)) {
		if (is_quick(number))
			quick_at_enter(state);
		else
			capture_at_enter(state, task);
	}
	state->run_delay = task->sched_info.run_delay;
	return state->pass;
}

static __always_inline int on_enter(struct pt_regs *regs, int number, enum access access)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct ptw_task *state;

	if (!enabled)	/* its exit might not be seen */
		return 0;
	state = bpf_task_storage_get(&tasks, task, 0, 0);
	if (!state)
		state = stranger_enters(task, number);
	if (!state)
		return 0;
	if (state->active == RECORDED && (state->pass & KIND(PTW_RECORD_SYSCALL)))
		count(losses.no_exit, state->call.head.number);
	state->active = PASSED_OVER;
	state->newborn = 0;
	if (!begin_call(state, task, regs, number, access))
		return 0;
	state->active = RECORDED;
	state->call.t_enter = bpf_ktime_get_ns();
	if (number == NUMBER_EXIT || number == NUMBER_EXIT_GROUP) {
		state->call.head.flags |= PTW_SYSCALL_NO_EXIT;
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
	if (!begin_call(state, task, regs, number, access))
		return 0;
	state->call.head.flags |= PTW_SYSCALL_NO_ENTER;
	return 1;
}

static __always_inline int on_exit(struct pt_regs *regs, long result, enum access access)
{
	__u64 now = bpf_ktime_get_ns();
	struct task_struct *task = bpf_get_current_task_btf();
	struct ptw_task *state = bpf_task_storage_get(&tasks, task, 0, 0);
	__u64 number;

	if (!state) {
		state = adopt(task);
		if (state)
			state->newborn = 0;	/* this was the exit */
		return 0;
	}
	if (state->active == PASSED_OVER) {
		state->active = NO_CALL;
		return 0;
	}
	if (state->active == NO_CALL) {
		if (!enabled || !begin_at_exit(state, task, regs, access))
			return 0;
		state->call.t_enter = now;
	}
	number = state->call.head.number;
	if (result <= ERESTART_FIRST && result >= ERESTART_LAST && (task->pending.signal.sig[0] & SIGKILL_BIT)) {
		/* the task is being killed: it will not see this, nor make the call again */
		state->call.head.flags |= PTW_SYSCALL_NO_EXIT;
		finish(state, task, 0);
		return 0;
	}
	state->call.t_exit = now;
	state->call.result = result;
	if (result == 0 && (number == NUMBER_EXECVE || number == NUMBER_EXECVEAT))
		state->retry = 0;	/* the pointers were into the old address space */
	if (number == NUMBER_IO_URING_ENTER && result > 0 && (state->pass & KIND(PTW_RECORD_SYSCALL)))
		__sync_fetch_and_add(&losses.io_uring, result);
	if (result >= 0 && returns_fd(&state->call) && (state->pass & KIND(PTW_RECORD_SYSCALL)))
		state->call.file[PTW_FILES - 1] = file_of(state, result);
	finish(state, task, 1);
	if (state->pass & ~KIND(PTW_RECORD_SYSCALL))
		emit_kinds(state, task);
	return 0;
}

static __always_inline int on_exec(struct linux_binprm *binprm)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct ptw_task *state = bpf_task_storage_get(&tasks, task, 0, 0);

	if (!state)
		return 0;
	state->generation = 0;	/* another program: judge it anew at its first call */
	if (state->active != RECORDED || !state->retry)
		return 0;
	if (state->call.head.number == NUMBER_EXECVE)
		capture_exec(state, task, BPF_CORE_READ(binprm, filename), 0);
	else if (state->call.head.number == NUMBER_EXECVEAT)
		capture_exec(state, task, 0, 1);
	return 0;
}

/* A process ends with its first thread, whichever that is by then. */
static __always_inline void note_end(struct task_struct *task)
{
	__u32 signal = task->exit_code & 0x7f;
	struct ptw_record ids;

	if (task->pid != task->tgid)
		return;
	fill_ids(&ids, task);
	if (signal)
		bpf_map_update_elem(&killed, &ids.pid, &signal, BPF_ANY);
	else
		bpf_map_delete_elem(&killed, &ids.pid);	/* another one had the number */
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
	note_end(task);
	if (state->active == RECORDED) {
		state->call.head.flags |= PTW_SYSCALL_NO_EXIT;
		finish(state, task, 0);
	}
	return 0;
}

#endif
