// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What the traced task executes: it is single-stepped in user mode (EFLAGS.TF), and each trap tells the encoder where
 * execution went. Tracepoints tell when it enters the kernel and comes back.
 *
 * Everything runs on the CPU of the traced task with interrupts off. Not followed: code whose MOV SS or POP SS holds a
 * trap back, tasks that a debugger steps, 32-bit code.
 */
#include <linux/kdebug.h>
#include <linux/kprobes.h>
#include <linux/sched/task_stack.h>
#include <linux/tracepoint.h>
#include <linux/uaccess.h>
#include <asm/debugreg.h>
#include <asm/irq_regs.h>
#include <asm/syscall.h>
#include <asm/trapnr.h>

#include "cpu.h"

#define PAGE_REST(address) (PAGE_SIZE - ((address) & (PAGE_SIZE - 1)))
#define SYSCALL_SIZE 2
#define PAUSE_SIZE 2

void ptlab_arm(struct ptlab_cpu *cpu, struct task_struct *task)
{
	struct pt_regs *regs = task_pt_regs(task);

	if (task->flags & PF_KTHREAD || !task->mm)
		return;
	if (cpu->armed != task || !cpu->ran)
		cpu->ran = ptlab_ran_of(task);
	regs->flags |= X86_EFLAGS_TF;
	cpu->armed = task;
	if (!cpu->context) {
		cpu->resume = regs->ip;
		cpu->pending = true;
	}
}

void ptlab_disarm(struct ptlab_cpu *cpu)
{
	if (cpu->armed && !test_tsk_thread_flag(cpu->armed, TIF_SINGLESTEP))
		task_pt_regs(cpu->armed)->flags &= ~X86_EFLAGS_TF;
	cpu->armed = NULL;
	cpu->ran = NULL;
}

static void enter_user(struct ptlab_cpu *cpu)
{
	cpu->pending = false;
	cpu->context = true;
	cpu->ip = cpu->resume;
	if (ptlab_passes(cpu, cpu->ip))
		ptlab_begin(cpu, cpu->ip);
}

/* 16 bytes; false where a page of them is not there. */
static bool read_at_once(u64 ip, u64 *words)
{
	const u64 __user *from = (const u64 __user *)ip;
	bool read = false;

	if (!user_access_begin(from, 2 * sizeof(*words)))
		return false;
	unsafe_get_user(words[0], from, fault);
	unsafe_get_user(words[1], from + 1, fault);
	read = true;
fault:
	user_access_end();
	return read;
}

static void read_code(u64 ip, u8 *code)
{
	unsigned int there = PAGE_REST(ip);

	memset(code, 0x90, PTLAB_CODE);
	pagefault_disable();
	if (!read_at_once(ip, (u64 *)code) && (there >= 16 || copy_from_user_nofault(code, (void __user *)ip, there)))
		memset(code, 0x90, PTLAB_CODE);
	pagefault_enable();
}

/* One instruction more: counted, whatever becomes of its packets. */
static void retired(struct ptlab_cpu *cpu, u64 ip)
{
	if (!ptlab_passes(cpu, ip))
		return;
	ptlab_ran(cpu->ran, ip);
	if (cpu->dropping)
		ptlab_ran_unseen(cpu->ran);
}

static bool is_pause(const u8 *code)
{
	return code[0] == 0xf3 && code[1] == 0x90;
}

/* QEMU's emulation lets no trap follow this instruction, but only the one behind it. */
static void catch_up_pause(struct ptlab_cpu *cpu, u64 ip)
{
	u8 code[PTLAB_CODE] __aligned(8);

	if (!cpu->context || ip != cpu->ip + PAUSE_SIZE)
		return;
	read_code(cpu->ip, code);
	if (is_pause(code)) {
		retired(cpu, cpu->ip);
		cpu->ip = ip;
	}
}

static bool is_call(const u8 *code)
{
	return code[0] == 0x0f && code[1] == 0x05;
}

/*
 * A system call that the tracepoint does not tell of: a seccomp filter answers it, or it is handed back to the program
 * (PR_SET_SYSCALL_USER_DISPATCH). Or it will, but the task loses its processor before.
 */
static void catch_up_call(struct ptlab_cpu *cpu, u64 ip)
{
	u64 call = ip - SYSCALL_SIZE;
	u8 code[PTLAB_CODE] __aligned(8);

	if (cpu->context ? cpu->ip != call : !cpu->pending || cpu->resume != call)
		return;
	read_code(call, code);
	if (!is_call(code))
		return;
	if (cpu->pending)
		enter_user(cpu);
	retired(cpu, call);
	ptlab_leave_call(cpu);
}

/* Execution stands at `ip`: what came before it without a trap is taken for executed. */
void ptlab_catch_up(struct ptlab_cpu *cpu, u64 ip)
{
	catch_up_pause(cpu, ip - SYSCALL_SIZE);
	catch_up_call(cpu, ip);
	catch_up_pause(cpu, ip);
}

static void force_overflow(struct ptlab_cpu *cpu, u64 ip)
{
	if (cpu->dropping) {
		if (!--cpu->dropping)
			ptlab_overflow(cpu, ip);
	} else if (ptlab_overflow_every && ++cpu->until_overflow >= ptlab_overflow_every) {
		cpu->until_overflow = 0;
		ptlab_flush(cpu);
		cpu->dropping = ptlab_overflow_length;
		ptlab_overflows++;
	}
}

static void inject(struct ptlab_cpu *cpu)
{
	u8 bytes[64];
	int size = cpu->packets ? ptlab_injected(bytes, sizeof(bytes)) : 0;

	if (size) {
		ptlab_flush(cpu);
		ptlab_out(cpu, bytes, size);
	}
}

static void step(struct ptlab_cpu *cpu, u64 to)
{
	u8 code[PTLAB_CODE] __aligned(8);
	int length;
	u64 from;

	if (cpu->pending)
		enter_user(cpu);
	if (!cpu->context)
		return;
	read_code(cpu->ip, code);
	if (is_pause(code) && to != cpu->ip + PAUSE_SIZE) {
		catch_up_pause(cpu, cpu->ip + PAUSE_SIZE);
		read_code(cpu->ip, code);
	}
	from = cpu->ip;
	if (from == to && ptlab_classify(code, &length) == PTLAB_REPEATED)
		return; /* one round of it */
	cpu->ip = to;
	retired(cpu, from);
	if (cpu->packets && (!ptlab_passes(cpu, to) || ptlab_stops(cpu, to))) {
		ptlab_ip(cpu, PTLAB_PGD, to); /* in place of what the branch would have had */
		cpu->packets = false;
	} else if (cpu->packets) {
		ptlab_branch(cpu, code, from, to);
	} else if (ptlab_passes(cpu, to)) {
		ptlab_begin(cpu, to);
	}
	if (ptlab_stops(cpu, to)) {
		ptlab_stop(cpu);
		return;
	}
	inject(cpu);
	ptlab_time(cpu);
	force_overflow(cpu, to);
	if (ptlab_psb_due(cpu))
		ptlab_psb(cpu, to);
}

/* A region with INT is full: as on the real processor, the interrupt leaves user mode before the driver runs. */
static void interrupt(struct ptlab_cpu *cpu, u64 ip)
{
	cpu->pmi = false;
	if (cpu->context)
		ptlab_leave_at(cpu, ip);
	intel_pt_interrupt();
	if (ptlab_active(cpu))
		ptlab_arm(cpu, current);
}

static bool stepped(const struct ptlab_cpu *cpu)
{
	return ptlab_active(cpu) && cpu->armed == current;
}

/* A step of a task, from the exception's entry: true if that was all. */
__visible bool ptlab_step(u64 to)
{
	struct ptlab_cpu *cpu = this_cpu_ptr(&ptlab_cpus);

	if (!stepped(cpu) || test_thread_flag(TIF_SINGLESTEP))
		return false;
	step(cpu, to);
	cpu->stepped = cpu->pmi;
	return !cpu->pmi;
}

static int on_invalid(struct die_args *args);

static int on_trap(struct notifier_block *block, unsigned long event, void *data)
{
	struct die_args *args = data;
	unsigned long *dr6 = (unsigned long *)args->err;
	struct ptlab_cpu *cpu;

	if (event == DIE_TRAP && args->trapnr == X86_TRAP_UD)
		return on_invalid(args);
	if (event != DIE_DEBUG || !user_mode(args->regs) || !(*dr6 & DR_STEP) || test_thread_flag(TIF_SINGLESTEP))
		return NOTIFY_DONE;
	cpu = this_cpu_ptr(&ptlab_cpus);
	if (stepped(cpu)) {
		if (!cpu->stepped)
			step(cpu, args->regs->ip);
		cpu->stepped = false;
		if (cpu->pmi)
			interrupt(cpu, args->regs->ip);
	} else {
		args->regs->flags &= ~X86_EFLAGS_TF; /* a fork's child, or tracing has ended */
	}
	/* An execution breakpoint at the next instruction, if there is one, is a fault of its own that is still to come
	 * (hw_breakpoint_handler); one that was switched off shows here as well (SDM vol. 3, 18.2.3). */
	*dr6 &= ~(DR_STEP | DR_TRAP_BITS);
	current->thread.virtual_dr6 &= ~DR_STEP;
	return NOTIFY_STOP;
}

static struct notifier_block trap_block = { .notifier_call = on_trap, .priority = 1000 };

/* --- PTWRITE --- */

/* Length of a PTWRITE of a register, 0 for anything else; F3 [REX] 0F AE /4, mod 3. */
static int classify_ptwrite(const u8 *code, unsigned int *reg, bool *wide)
{
	int at = 1;
	u8 rex = 0;

	if (code[0] != 0xf3)
		return 0;
	if ((code[at] & 0xf0) == 0x40)
		rex = code[at++];
	if (code[at] != 0x0f || code[at + 1] != 0xae || (code[at + 2] & 0xf8) != 0xe0)
		return 0;
	*reg = (code[at + 2] & 7) | (rex & 1) << 3;
	*wide = rex & 8;
	return at + 3;
}

static u64 register_of(const struct pt_regs *regs, unsigned int number)
{
	const unsigned long *registers[] = {
		&regs->ax, &regs->cx, &regs->dx, &regs->bx, &regs->sp, &regs->bp, &regs->si, &regs->di,
		&regs->r8, &regs->r9, &regs->r10, &regs->r11, &regs->r12, &regs->r13, &regs->r14, &regs->r15 };

	return *registers[number];
}

/* QEMU's processor does not know PTWRITE: executed here, and as an instruction like any other for the trace. */
static int on_invalid(struct die_args *args)
{
	struct ptlab_cpu *cpu;
	unsigned long flags;
	u8 code[PTLAB_CODE] __aligned(8);
	unsigned int reg;
	bool wide;
	int length;

	if (!user_mode(args->regs))
		return NOTIFY_DONE;
	read_code(args->regs->ip, code);
	length = classify_ptwrite(code, &reg, &wide);
	if (!length)
		return NOTIFY_DONE;
	local_irq_save(flags);
	cpu = this_cpu_ptr(&ptlab_cpus);
	if (stepped(cpu)) {
		if (cpu->pending)
			enter_user(cpu);
		ptlab_catch_up(cpu, args->regs->ip);
		ptlab_ptwrite(cpu, args->regs->ip, register_of(args->regs, reg), wide);
		step(cpu, args->regs->ip + length);
		if (cpu->pmi)
			interrupt(cpu, args->regs->ip + length);
	}
	args->regs->ip += length;
	local_irq_restore(flags);
	return NOTIFY_STOP;
}

/* --- into the kernel and back --- */

static void on_sys_enter(void *unused, struct pt_regs *regs, long number)
{
	struct ptlab_cpu *cpu;
	unsigned long flags;

	local_irq_save(flags);
	cpu = this_cpu_ptr(&ptlab_cpus);
	if (stepped(cpu)) {
		if (cpu->pending && cpu->resume != regs->ip) /* else it lost its processor on the way here */
			enter_user(cpu);
		catch_up_pause(cpu, regs->ip - SYSCALL_SIZE);
		if (cpu->context)
			retired(cpu, regs->ip - SYSCALL_SIZE); /* no trap follows a system call */
		ptlab_leave_call(cpu);
	}
	local_irq_restore(flags);
}

static bool was_exec(struct pt_regs *regs)
{
	long number = syscall_get_nr(current, regs);

	return number == __NR_execve || number == __NR_execveat || regs->orig_ax == __NR_execve;
}

static void on_sys_exit(void *unused, struct pt_regs *regs, long result)
{
	struct ptlab_cpu *cpu;
	unsigned long flags;

	local_irq_save(flags);
	cpu = this_cpu_ptr(&ptlab_cpus);
	if (ptlab_active(cpu)) {
		ptlab_catch_up(cpu, regs->ip);
		if (was_exec(regs))
			cpu->need_tsc = true; /* what MTC and CYC would tell: the addresses mean another program now */
		ptlab_arm(cpu, current);
	}
	local_irq_restore(flags);
}

/* An event of a whole CPU stays on. One of the task that leaves is still on as well, is switched off next, and must not be
 * taken to the next task's place then. */
static void on_switch(void *unused, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int state)
{
	struct ptlab_cpu *cpu = this_cpu_ptr(&ptlab_cpus);

	if (!ptlab_active(cpu))
		return;
	ptlab_catch_up(cpu, task_pt_regs(prev)->ip);
	if (cpu->context)
		ptlab_leave_at(cpu, task_pt_regs(prev)->ip);
	cpu->pending = false;
	ptlab_disarm(cpu);
	cpu->need_tsc = true;
	ptlab_arm(cpu, next);
}

static void left(struct pt_regs *regs)
{
	struct ptlab_cpu *cpu = this_cpu_ptr(&ptlab_cpus);

	if (!ptlab_asynchronous || !user_mode(regs) || !ptlab_active(cpu) || cpu->armed != current || !cpu->context)
		return;
	ptlab_catch_up(cpu, regs->ip);
	ptlab_leave_at(cpu, regs->ip);
	ptlab_arm(cpu, current);
}

static void on_page_fault(void *unused, unsigned long address, struct pt_regs *regs, unsigned long code)
{
	unsigned long flags;

	local_irq_save(flags);
	left(regs);
	local_irq_restore(flags);
}

static void on_timer(void *unused, int vector)
{
	struct pt_regs *regs = get_irq_regs();

	if (regs)
		left(regs);
}

/* --- signals: delivery moves the task, and clears TF --- */

struct place {
	u64 ip, sp;
};

static int signal_entry(struct kretprobe_instance *instance, struct pt_regs *unused)
{
	struct place *before = (struct place *)instance->data;
	struct pt_regs *regs = task_pt_regs(current);

	before->ip = regs->ip;
	before->sp = regs->sp;
	return 0;
}

static int signal_return(struct kretprobe_instance *instance, struct pt_regs *unused)
{
	const struct place *before = (const struct place *)instance->data;
	struct pt_regs *regs = task_pt_regs(current);
	struct ptlab_cpu *cpu;
	unsigned long flags;

	local_irq_save(flags);
	cpu = this_cpu_ptr(&ptlab_cpus);
	if (ptlab_active(cpu) && (regs->ip != before->ip || regs->sp != before->sp)) {
		ptlab_catch_up(cpu, before->ip);
		if (cpu->context)
			ptlab_leave_at(cpu, before->ip);
		ptlab_arm(cpu, current);
	}
	local_irq_restore(flags);
	return 0;
}

static struct kretprobe signal_probe = {
	.kp.symbol_name = "arch_do_signal_or_restart", .entry_handler = signal_entry, .handler = signal_return,
	.data_size = sizeof(struct place), .maxactive = 64,
};

/* --- */

static struct {
	const char *name;
	void *function;
	struct tracepoint *point;
} points[] = {
	{ "sys_enter", on_sys_enter }, { "sys_exit", on_sys_exit }, { "sched_switch", on_switch },
	{ "page_fault_user", on_page_fault }, { "local_timer_entry", on_timer },
};

static void look_at(struct tracepoint *point, void *unused)
{
	for (int i = 0; i < ARRAY_SIZE(points); i++)
		if (!strcmp(point->name, points[i].name))
			points[i].point = point;
}

int ptlab_steps_init(void)
{
	int status = 0, i;

	for_each_kernel_tracepoint(look_at, NULL);
	for (i = 0; i < ARRAY_SIZE(points) && !status; i++)
		status = points[i].point ? tracepoint_probe_register(points[i].point, points[i].function, NULL) : -ENOENT;
	if (status) {
		pr_err("ptlab: tracepoint %s: %d\n", points[i - 1].name, status);
		return status;
	}
	status = register_kretprobe(&signal_probe);
	return status ? status : register_die_notifier(&trap_block);
}
