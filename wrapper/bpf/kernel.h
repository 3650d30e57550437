/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Parts of the kernel's types and constants; the loader finds where the fields are in the kernel at hand. */
#ifndef PTW_KERNEL_H
#define PTW_KERNEL_H

#include <linux/types.h>

enum number {
	NUMBER_EXECVE = 59,
	NUMBER_FCNTL = 72,
	NUMBER_EXIT = 60,
	NUMBER_EXIT_GROUP = 231,
	NUMBER_EXECVEAT = 322,
	NUMBER_IO_URING_ENTER = 426,
};

enum kernel_value {
	F_DUPFD = 0,
	F_DUPFD_CLOEXEC = 1030,
	AT_FDCWD = -100,
	TS_COMPAT = 2,			/* thread_info.status: a 32-bit call */
	SIGKILL_BIT = 1 << 8,
	ERESTART_FIRST = -512,		/* ERESTARTSYS */
	ERESTART_LAST = -516,		/* ERESTART_RESTARTBLOCK */
	NAMESPACES = 8,			/* depth of pid namespaces looked through (the kernel allows 32) */
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct pt_regs {
	unsigned long r10, r9, r8, dx, si, di, orig_ax, ip;
};
struct list_head {
	struct list_head *next;
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
struct qstr {
	__u32 hash; /* not hash_len: Linux 6.1's verifier does not know its way into that union */
	const unsigned char *name;
};
struct seqcount {
	unsigned int sequence;
};
typedef struct seqcount seqcount_t;
struct seqcount_spinlock {
	seqcount_t seqcount;
};
typedef struct seqcount_spinlock seqcount_spinlock_t;
struct hlist_bl_node {
	struct hlist_bl_node **pprev;
};
struct inode;
struct dentry {
	seqcount_spinlock_t d_seq;
	struct hlist_bl_node d_hash;
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
};
struct vfsmount {
	struct dentry *mnt_root;
};
struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
};
struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};
struct file_system_type {
	const char *name;
};
struct super_block {
	__u32 s_dev;
	struct file_system_type *s_type;
};
struct inode {
	unsigned short i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
};
struct file {
	struct path f_path;
	struct inode *f_inode;
	const void *f_op;
};
struct fdtable {
	unsigned int max_fds;
	struct file **fd;
	unsigned long *open_fds;
};
struct fs_struct {
	struct path pwd;
};
struct files_struct {
	struct fdtable *fdt;
};
struct mm_struct {
	unsigned long arg_start, arg_end, env_start, env_end;
	struct file *exe_file;
};
struct sched_info {
	unsigned long long run_delay;
};
struct task_struct {
	struct thread_info thread_info;
	int pid;
	int tgid;
	int exit_code;
	char comm[16];
	struct pid *thread_pid;
	struct signal_struct *signal;
	struct sigpending pending;
	struct fs_struct *fs;
	struct files_struct *files;
	struct mm_struct *mm;
	struct sched_info sched_info;
};
struct linux_binprm {
	const char *filename;
};
struct kernel_siginfo {
	int si_signo;
	int si_code;
};
struct sigaction {
	void *sa_handler;
};
struct k_sigaction {
	struct sigaction sa;
};
#pragma clang attribute pop

#endif
