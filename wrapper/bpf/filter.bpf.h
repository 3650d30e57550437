/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Filters: which kinds of event of a task pass.
 *
 * Each filter (pid, tid, comm, exe, cmdline) that has rules is asked; a kind passes when all agree. Where a filter has
 * no rule for the task, or none for the kind, its fallback holds. A rule that accepts and rejects a kind rejects it:
 * user space sees to that when it writes the rule.
 *
 * The verdict is kept with the task. It is made again at the next call after an exec, after the rules changed, and
 * where a filter looks at the comm, after that changed. A call is judged once, when it is entered: what it is to both
 * stages, whatever changes meanwhile.
 *
 * There are two banks of rules. User space writes the one that is not in use, then sets `generation`; it waits until
 * no program runs that began before (a grace period of RCU) before it writes a bank again.
 */
#ifndef PTW_FILTER_BPF_H
#define PTW_FILTER_BPF_H

#include "capture.bpf.h"
#include "files.bpf.h"

enum filter_limit { RULES = 1 << 13 };

struct key_id {
	__u32 bank;
	__u32 id;
};

struct key_comm {
	__u64 bank;
	char comm[16];
};

/* exe: the path's components, the last first, each with its NUL; cmdline: the words, each with its NUL */
struct key_text {
	__u64 bank;
	char text[PTW_KEY];
};

#define RULE_MAP(name, key_type)                         \
	struct {                                         \
		__uint(type, BPF_MAP_TYPE_HASH);         \
		__uint(map_flags, BPF_F_NO_PREALLOC);    \
		__uint(max_entries, RULES);              \
		__type(key, key_type);                   \
		__type(value, struct ptw_rule);          \
	} name SEC(".maps")

RULE_MAP(rules_pid, struct key_id);
RULE_MAP(rules_tid, struct key_id);
RULE_MAP(rules_comm, struct key_comm);
RULE_MAP(rules_exe, struct key_text);
RULE_MAP(rules_cmdline, struct key_text);

static __always_inline __u32 apply(__u32 pass, struct ptw_rule *rule, __u32 fallback)
{
	return pass & (rule ? (rule->accept & rule->active) | (fallback & ~rule->active) : fallback);
}

/* The key is at the beginning of the text's bytes; the path is written behind it first. */
static __always_inline void read_exe(struct task_struct *task, struct key_text *key, struct text *text)
{
	struct file *exe = BPF_CORE_READ(task, mm, exe_file);
	char *components = text->bytes + PTW_STRUCT_LIMIT;
	struct path path;
	__u64 size;

	if (!exe)
		return;
	bpf_core_read(&path, sizeof(path), &exe->f_path);
	if (walk_path(path.dentry, path.mnt, components, PTW_PATH_SIZE, &text->used))
		return;
	size = text->used;
	KEEP(size);
	if (size < PTW_KEY)	/* a rule cannot be longer */
		bpf_probe_read_kernel(key->text, size, components);
}

static __always_inline void read_cmdline(struct task_struct *task, struct key_text *key)
{
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	__u64 from, size;

	if (!mm)
		return;
	from = BPF_CORE_READ(mm, arg_start);
	size = BPF_CORE_READ(mm, arg_end) - from;
	KEEP(size);
	if (size >= PTW_KEY)
		return;		/* a rule cannot be longer */
	KEEP(size);		/* the two comparisons stay two: Linux before 6.4 does not see through one */
	if (size && bpf_probe_read_user(key->text, size, (const void *)from))
		key->text[0] = '\0';
}

/* The exe and cmdline filters need room for a long key: the text storage, before the call uses it. It is got here: Linux
 * before 6.4 takes no argument of a function for a key. */
__noinline __u32 judge_text(struct ptw_task *state, __u32 bank)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct text *text = bpf_task_storage_get(&texts, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct key_text *key;
	struct ptw_bank *rules;
	__u32 pass = ~0u;

	if (!state || !text)
		return 0;
	rules = &banks[bank & (PTW_BANKS - 1)];
	key = (void *)text->bytes;
	if (rules->used & (1 << PTW_FILTER_EXE)) {
		__builtin_memset(key, 0, sizeof(*key));
		key->bank = bank & (PTW_BANKS - 1);
		read_exe(task, key, text);
		pass = apply(pass, bpf_map_lookup_elem(&rules_exe, key), rules->fallback[PTW_FILTER_EXE]);
	}
	if (rules->used & (1 << PTW_FILTER_CMDLINE)) {
		__builtin_memset(key, 0, sizeof(*key));
		key->bank = bank & (PTW_BANKS - 1);
		read_cmdline(task, key);
		pass = apply(pass, bpf_map_lookup_elem(&rules_cmdline, key), rules->fallback[PTW_FILTER_CMDLINE]);
	}
	return pass;
}

static __always_inline __u32 judge(struct ptw_task *state, struct task_struct *task, __u32 with)
{
	struct ptw_bank *rules = &banks[with & (PTW_BANKS - 1)];
	__u32 bank = with & (PTW_BANKS - 1);
	struct ptw_record ids;
	__u32 pass = rules->kinds;

	if (!rules->used)
		return pass;
	fill_ids(&ids, task);
	if (rules->used & (1 << PTW_FILTER_PID)) {
		struct key_id key = {.bank = bank, .id = ids.pid};

		pass = apply(pass, bpf_map_lookup_elem(&rules_pid, &key), rules->fallback[PTW_FILTER_PID]);
	}
	if (rules->used & (1 << PTW_FILTER_TID)) {
		struct key_id key = {.bank = bank, .id = ids.tid};

		pass = apply(pass, bpf_map_lookup_elem(&rules_tid, &key), rules->fallback[PTW_FILTER_TID]);
	}
	if (rules->used & (1 << PTW_FILTER_COMM)) {
		struct key_comm key = {.bank = bank};

		__builtin_memcpy(key.comm, state->comm, sizeof(key.comm));
		pass = apply(pass, bpf_map_lookup_elem(&rules_comm, &key), rules->fallback[PTW_FILTER_COMM]);
	}
	if (rules->used & (1 << PTW_FILTER_EXE | 1 << PTW_FILTER_CMDLINE))
		pass &= judge_text(state, bank);
	return pass;
}

/* Kinds of event that pass, of a task between two calls. */
static __always_inline __u32 verdict(struct ptw_task *state, struct task_struct *task)
{
	__u32 now = generation;
	int same = state->generation == now;

	if (banks[now & (PTW_BANKS - 1)].used & (1 << PTW_FILTER_COMM)) {
		__u64 comm[2] = {};

		/* up to its NUL: what is behind it is of earlier names */
		bpf_probe_read_kernel_str(comm, sizeof(comm), task->comm);
		same &= comm[0] == state->comm[0] && comm[1] == state->comm[1];
		state->comm[0] = comm[0];
		state->comm[1] = comm[1];
	}
	if (!same) {
		state->judged = judge(state, task, now);
		state->generation = now;
	}
	return state->judged;
}

#endif
