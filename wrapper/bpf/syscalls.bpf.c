// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * System calls and what the kernel tells beside them, of a tree of tasks or of all: where the programs are attached.
 *
 * Every program exists twice: tp_btf (typed), and raw_tp for kernels that refuse that. User space loads one set.
 * Nothing here waits or loops without a bound; a program that cannot go on counts why.
 */
#include "calls.bpf.h"
#include "probes.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* --- typed --------------------------------------------------------------------------------------------------- */

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

	if (cfg_all || !bpf_task_storage_get(&tasks, parent, 0, 0))
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

SEC("tp_btf/signal_generate")
int BPF_PROG(btf_signal_sent, int signal, struct kernel_siginfo *info, struct task_struct *target, int group,
	     int result)
{
	return on_signal_sent(signal, info, target, result);
}

SEC("tp_btf/signal_deliver")
int BPF_PROG(btf_signal_delivered, int signal, struct kernel_siginfo *info, struct k_sigaction *action)
{
	return on_signal_delivered(signal, info, action);
}

/* --- raw ----------------------------------------------------------------------------------------------------- */

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
	if (!cfg_all && bpf_task_storage_get(&tasks, (struct task_struct *)bpf_get_current_task_btf(), 0, 0))
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

SEC("raw_tp/signal_generate")
int BPF_PROG(raw_signal_sent, int signal, struct kernel_siginfo *info, struct task_struct *target, int group,
	     int result)
{
	return on_signal_sent(signal, info, target, result);
}

SEC("raw_tp/signal_deliver")
int BPF_PROG(raw_signal_delivered, int signal, struct kernel_siginfo *info, struct k_sigaction *action)
{
	return on_signal_delivered(signal, info, action);
}

/* --- in programs ------------------------------------------------------------------------------------------------ */

SEC("uprobe")
int probe_hit(void *registers)
{
	return on_probe(registers);
}
