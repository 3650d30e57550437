// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What really ran: for each traced task how many instructions, and a hash of their addresses in order. It knows nothing
 * of packets: it is what decoded packets are compared with.
 *
 * /proc/ptlab: a line for each task: PID TID INSTRUCTIONS HASH UNSEEN, the last being instructions that ran while a
 * forced overflow dropped packets. Writing to it forgets everything. A task's entry is written on the CPU it runs on.
 */
#include <linux/hash.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/spinlock.h>

#include "cpu.h"

#define TASKS 4096

struct ptlab_ran {
	pid_t pid, tid;
	u64 start;
	u64 count, hash, unseen;
};

static struct ptlab_ran tasks[TASKS];
static unsigned int used;
static DEFINE_RAW_SPINLOCK(lock);

struct ptlab_ran *ptlab_ran_of(struct task_struct *task)
{
	struct ptlab_ran *found = NULL;
	unsigned long flags;

	raw_spin_lock_irqsave(&lock, flags);
	for (unsigned int i = used; i-- > 0;)
		if (tasks[i].tid == task->pid && tasks[i].start == task->start_time) {
			found = &tasks[i];
			break;
		}
	if (!found && used < TASKS) {
		found = &tasks[used++];
		*found = (struct ptlab_ran){ .pid = task->tgid, .tid = task->pid, .start = task->start_time };
	}
	raw_spin_unlock_irqrestore(&lock, flags);
	return found;
}

void ptlab_ran(struct ptlab_ran *ran, u64 ip)
{
	u64 hash;

	if (!ran)
		return;
	hash = (ran->hash ^ ip) * 0x9E3779B97F4A7C15ull;
	ran->hash = hash ^ hash >> 29;
	ran->count++;
}

void ptlab_ran_unseen(struct ptlab_ran *ran)
{
	if (ran)
		ran->unseen++;
}

static int show(struct seq_file *out, void *unused)
{
	for (unsigned int i = 0; i < READ_ONCE(used); i++)
		seq_printf(out, "%d %d %llu %016llx %llu\n", tasks[i].pid, tasks[i].tid, tasks[i].count, tasks[i].hash,
			   tasks[i].unseen);
	return 0;
}

static int open(struct inode *inode, struct file *file)
{
	return single_open(file, show, NULL);
}

static ssize_t forget(struct file *file, const char __user *bytes, size_t size, loff_t *at)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&lock, flags);
	used = 0;
	raw_spin_unlock_irqrestore(&lock, flags);
	return size;
}

static const struct proc_ops operations = {
	.proc_open = open, .proc_read = seq_read, .proc_write = forget, .proc_lseek = seq_lseek,
	.proc_release = single_release,
};

int ptlab_oracle_init(void)
{
	return proc_create("ptlab", 0600, NULL, &operations) ? 0 : -ENOMEM;
}

void ptlab_oracle_deinit(void)
{
	remove_proc_entry("ptlab", NULL);
}
