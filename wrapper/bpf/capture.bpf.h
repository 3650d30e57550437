/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Captures: the memory that a call's arguments point to, copied behind the call's record as its description says.
 *
 * What the kernel reads is copied at enter. A page that is not present cannot be read here, but the kernel reads it
 * in the call itself, so the same read is repeated at exit; for execve, which replaces the address space, the kernel's
 * own copies are taken in sched_process_exec. What the kernel writes is copied at exit.
 */
#ifndef PTW_CAPTURE_BPF_H
#define PTW_CAPTURE_BPF_H

#include "common.bpf.h"

/* struct iovec and struct user_msghdr (include/linux/socket.h): the system calls' interface. */
struct iovec {
	__u64 base, len;
};
struct user_msghdr {
	__u64 name;
	__u32 name_len, pad;
	__u64 iov, iov_len, control, control_len;
	__u32 flags, pad2;
};
struct mmsghdr {
	struct user_msghdr message;
	__u32 len, pad;
};

/* The task's text storage, emptied if what is there is not this call's; NULL when there is no memory. */
static __always_inline struct text *take_text(struct ptw_task *state, struct task_struct *task)
{
	struct text *text = bpf_task_storage_get(&texts, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!text) {
		state->call.head.flags |= PTW_SYSCALL_NO_ROOM;
		return 0;
	}
	if (!state->has_text) {
		text->used = 0;
		text->full = 0;
	}
	state->has_text = 1;
	return text;
}

/* Where the next chunk begins; NULL when there is no room. */
static __always_inline struct ptw_chunk *next_chunk(struct text *text, __u64 *used)
{
	*used = text->used;
	KEEP(*used);
	if (*used >= PTW_ROOM) {
		text->full = 1;
		return 0;
	}
	return (void *)(text->bytes + *used);
}

static __always_inline void end_chunk(struct text *text, __u64 used, __u64 kept)
{
	text->used = used + sizeof(struct ptw_chunk) + ((kept + 7) & ~7ull);
}

static __always_inline void fill_chunk(struct ptw_chunk *chunk, __u32 argument, __u32 kind, __u32 part, __u32 when,
				       __u32 state, __u32 kept, __u64 size)
{
	chunk->argument = argument;
	chunk->kind = kind;
	chunk->part = part;
	chunk->when = when;
	chunk->state = state;
	chunk->kept = kept;
	chunk->size = size;
}

/* What identifies a capture, in one word for the verifier's sake: argument, kind, part, when. */
#define WHAT(argument, kind, part, when) ((argument) | (kind) << 8 | PART(part) | (when) << 24)
#define PART(part) ((part) << 16)

static __always_inline void fill_what(struct ptw_chunk *chunk, __u32 what, __u32 state, __u32 kept, __u64 size)
{
	fill_chunk(chunk, what & 255, what >> 8 & 255, what >> 16 & 255, what >> 24, state, kept, size);
}

__noinline int put_nothing(struct text *text, __u32 what, __u64 size)
{
	__u64 used;
	struct ptw_chunk *chunk;

	if (!text)
		return -1;
	chunk = next_chunk(text, &used);
	if (!chunk)
		return 0;
	fill_what(chunk, what, PTW_CHUNK_UNREADABLE, 0, size);
	end_chunk(text, used, 0);
	return 0;
}

/* Copy at most `limit` of `size` bytes. Returns 0 (also when there was no room, which is marked), -1 if unreadable. */
__noinline int put_bytes(struct text *text, __u32 what, __u64 pointer, __u64 size, __u64 limit)
{
	struct ptw_chunk *chunk;
	__u64 kept = size;
	__u64 used;

	if (!text)
		return -1;
	chunk = next_chunk(text, &used);
	if (!chunk)
		return 0;
	if (kept > limit)
		kept = limit;
	KEEP(kept);
	if (kept > PTW_WORDS_SIZE)
		kept = PTW_WORDS_SIZE;
	if (kept && bpf_probe_read_user(chunk + 1, kept, (const void *)pointer))
		return -1;
	fill_what(chunk, what, PTW_CHUNK_READ, kept, size);
	end_chunk(text, used, kept);
	return 0;
}

__noinline int put_string(struct text *text, __u32 what, __u64 pointer, __u32 from_kernel)
{
	struct ptw_chunk *chunk;
	__u64 used;
	long size;

	if (!text)
		return -1;
	chunk = next_chunk(text, &used);
	if (!chunk)
		return 0;
	if (from_kernel)
		size = bpf_probe_read_kernel_str(chunk + 1, PTW_PATH_SIZE + 1, (const void *)pointer);
	else
		size = bpf_probe_read_user_str(chunk + 1, PTW_PATH_SIZE + 1, (const void *)pointer);
	if (size <= 0)
		return -1;
	fill_what(chunk, what, size > PTW_PATH_SIZE ? PTW_CHUNK_TRUNCATED : PTW_CHUNK_READ, size - 1, size - 1);
	end_chunk(text, used, size - 1);
	return 0;
}

/* The strings of a NULL-terminated array, each with its NUL. */
__noinline int put_words(struct text *text, __u32 what, __u64 pointer)
{
	struct ptw_chunk *chunk;
	__u32 state = PTW_CHUNK_TRUNCATED;
	__u64 total = 0;
	__u64 used;
	char *to;

	if (!text)
		return -1;
	chunk = next_chunk(text, &used);
	if (!chunk)
		return 0;
	to = (char *)(chunk + 1);
	for (__u32 i = 0; i < PTW_WORDS; i++) {
		__u64 word = 0;
		long size;

		if (bpf_probe_read_user(&word, sizeof(word), (const void *)(pointer + i * sizeof(word))))
			return -1;
		if (!word) {
			state = PTW_CHUNK_READ;
			break;
		}
		KEEP(total);
		if (total >= PTW_WORDS_SIZE)
			break;
		size = bpf_probe_read_user_str(to + total, PTW_SLACK - PTW_WORDS_SIZE - 64, (const void *)word);
		if (size <= 0)
			return -1;
		total += size;
		if (size >= PTW_SLACK - PTW_WORDS_SIZE - 64)
			break;	/* the beginning of a longer one */
	}
	fill_what(chunk, what, state, total, total);
	end_chunk(text, used, total);
	return 0;
}

/* What a vector's buffers hold, one behind the other: at most `bytes`, and as much as the user wants. */
__noinline int put_vector_data(struct text *text, __u32 what, __u64 vector, __u64 elements, __u64 bytes)
{
	struct ptw_chunk *chunk;
	__u64 total = 0;
	__u64 size = 0;
	__u64 used;
	char *to;

	if (!text)
		return -1;
	chunk = next_chunk(text, &used);
	if (!chunk)
		return 0;
	to = (char *)(chunk + 1);
	for (__u32 i = 0; i < PTW_VECTORS; i++) {
		struct iovec one;
		__u64 want;

		if (i >= elements || size >= bytes)
			break;
		if (bpf_probe_read_user(&one, sizeof(one), (const void *)(vector + i * sizeof(one))))
			return -1;
		want = one.len < bytes - size ? one.len : bytes - size;
		size += want;
		KEEP(total);
		if (total >= cfg_capture || total >= PTW_CAPTURE_LIMIT)
			continue;
		if (want > cfg_capture - total)
			want = cfg_capture - total;
		KEEP(want);
		if (want > PTW_CAPTURE_LIMIT)
			want = PTW_CAPTURE_LIMIT;
		if (want && bpf_probe_read_user(to + total, want, (const void *)one.base))
			return -1;
		total += want;
	}
	fill_what(chunk, what, elements > PTW_VECTORS ? PTW_CHUNK_TRUNCATED : PTW_CHUNK_READ, total, size);
	end_chunk(text, used, total);
	return 0;
}

static __always_inline int put_vector(struct text *text, __u32 argument, __u32 when, __u64 pointer, __u64 elements,
				      __u64 bytes)
{
	if (elements > 1024)	/* UIO_MAXIOV: the kernel refuses more */
		elements = 0;
	if (put_bytes(text, WHAT(argument, PTW_CAPTURE_VECTOR, PTW_PART_ITSELF, when), pointer,
		      elements * sizeof(struct iovec), PTW_VECTORS * sizeof(struct iovec)))
		return -1;
	return put_vector_data(text, WHAT(argument, PTW_CAPTURE_VECTOR, PTW_PART_DATA, when), pointer, elements, bytes);
}

/* What a message's header points to. `what`: that of the header, which the parts are added to. */
__noinline int put_message_parts(struct text *text, __u32 what, __u64 pointer, __u64 bytes)
{
	struct user_msghdr message;

	if (!text)
		return -1;
	if (bpf_probe_read_user(&message, sizeof(message), (const void *)pointer))
		return -1;
	if (message.name && put_bytes(text, what + PART(PTW_PART_ADDRESS), message.name, message.name_len, 128))
		return -1;
	if (message.iov_len <= 1024 &&
	    put_vector_data(text, what + PART(PTW_PART_DATA), message.iov, message.iov_len, bytes))
		return -1;
	if (message.control && message.control_len)
		return put_bytes(text, what + PART(PTW_PART_CONTROL), message.control, message.control_len,
				 PTW_STRUCT_LIMIT);
	return 0;
}

static __always_inline int put_message(struct text *text, __u32 what, __u64 pointer, __u64 bytes)
{
	if (put_bytes(text, what, pointer, sizeof(struct user_msghdr), sizeof(struct user_msghdr)))
		return -1;
	return put_message_parts(text, what, pointer, bytes);
}

/*
 * An array of messages: of each as much as went into it (`when` at exit), or all it has. `last`: there will be no other
 * try, so that a message that cannot be read costs no others.
 */
__noinline int put_messages(struct text *text, __u32 what, __u64 pointer, __u64 count, __u32 last)
{
	__u32 at_exit = what >> 24 == PTW_AT_EXIT;

	if (!text)
		return -1;
	if (count > 1024)	/* UIO_MAXIOV: the kernel takes as many of more */
		count = 1024;
	if (put_bytes(text, what, pointer, count * sizeof(struct mmsghdr), PTW_MESSAGES * sizeof(struct mmsghdr)))
		return -1;
	for (__u32 i = 0; i < PTW_MESSAGES; i++) {
		const struct mmsghdr *one = (const void *)(pointer + i * sizeof(*one));
		__u32 mine = what + PART(PTW_PARTS * i);
		__u32 before = text->used;
		__u32 len = 0;

		if (i >= count)
			break;
		if (!(at_exit && bpf_probe_read_user(&len, sizeof(len), &one->len)) &&
		    !put_message_parts(text, mine, (__u64)one, at_exit ? len : ~0ull))
			continue;
		if (!last)
			return -1;
		text->used = before;
		put_nothing(text, mine + PART(PTW_PART_DATA), 0);
	}
	return 0;
}

/* How many units an argument points to. */
static __always_inline __u64 units_of(const volatile struct ptw_argument *argument, struct ptw_syscall *call,
				      __s64 result)
{
	__u64 which = argument->which;
	__u32 pointed = 0;

	switch (argument->count) {
	case PTW_COUNT_RESULT:
		return result > 0 ? result : 0;
	case PTW_COUNT_ARGUMENT:
		KEEP(which);
		return which < PTW_ARGUMENTS ? call->args[which] : 0;
	case PTW_COUNT_BITS:
		KEEP(which);
		return which < PTW_ARGUMENTS ? (call->args[which] + 63) / 64 * 8 : 0;
	case PTW_COUNT_POINTED:
		KEEP(which);
		if (which >= PTW_ARGUMENTS ||
		    bpf_probe_read_user(&pointed, sizeof(pointed), (const void *)call->args[which]))
			return 0;
		return pointed;
	default:
		return 1;
	}
}

/* Capture argument `i`. Returns 0, or -1 when its memory could not be read: what was put of it is taken back. */
__noinline int capture(struct ptw_task *state, struct text *text, __u64 i, __u32 when, __s64 result)
{
	const volatile struct ptw_argument *argument;
	__u64 number, pointer, units, size, bytes;
	__u32 before;
	int error = 0;

	if (!state || !text)
		return 0;
	number = state->call.head.number;
	KEEP(number);
	KEEP(i);
	if (number >= PTW_NUMBERS || i >= PTW_ARGUMENTS)
		return 0;
	argument = &cfg_descriptions[number].argument[i];
	pointer = state->call.args[i];
	if (!pointer)
		return argument->kind == PTW_CAPTURE_PATH ? -1 : 0;
	before = text->used;
	bytes = when == PTW_AT_EXIT ? (result > 0 ? result : 0) : ~0ull;
	switch (argument->kind) {
	case PTW_CAPTURE_PATH:
	case PTW_CAPTURE_STRING:
		error = put_string(text, WHAT(i, argument->kind, PTW_PART_ITSELF, when), pointer, 0);
		break;
	case PTW_CAPTURE_STRUCT:
	case PTW_CAPTURE_BUFFER:
		if (argument->kind == PTW_CAPTURE_BUFFER && !cfg_capture)
			break;
		units = units_of(argument, &state->call, result);
		if (units > 1u << 31)
			units = 0;
		size = units * argument->unit;
		if (size)
			error = put_bytes(text, WHAT(i, argument->kind, PTW_PART_ITSELF, when), pointer, size,
					  argument->kind == PTW_CAPTURE_BUFFER ? cfg_capture : PTW_STRUCT_LIMIT);
		break;
	case PTW_CAPTURE_VECTOR:
		units = units_of(argument, &state->call, result);
		error = put_vector(text, i, when, pointer, units, bytes);
		break;
	case PTW_CAPTURE_MESSAGE:
		error = put_message(text, WHAT(i, PTW_CAPTURE_MESSAGE, PTW_PART_ITSELF, when), pointer, bytes);
		break;
	case PTW_CAPTURE_MESSAGES:
		units = units_of(argument, &state->call, result);
		error = put_messages(text, WHAT(i, PTW_CAPTURE_MESSAGES, PTW_PART_ITSELF, when), pointer, units,
				     when == PTW_AT_EXIT || (state->retry & (1u << i)));
		break;
	case PTW_CAPTURE_WORDS:
		error = put_words(text, WHAT(i, PTW_CAPTURE_WORDS, PTW_PART_ITSELF, when), pointer);
		break;
	}
	if (error)
		text->used = before;
	return error;
}

static __always_inline void capture_stack(struct text *text, struct task_struct *task)
{
	struct ptw_chunk *chunk;
	__u64 used;
	long size;

	if (!cfg_frames)
		return;
	chunk = next_chunk(text, &used);
	if (!chunk)
		return;
	size = bpf_get_task_stack(task, chunk + 1, PTW_FRAMES * sizeof(__u64), BPF_F_USER_STACK);
	if (size < 0)
		return;
	if (size > (long)(cfg_frames * sizeof(__u64)))
		size = cfg_frames * sizeof(__u64);
	fill_what(chunk, WHAT(PTW_ARGUMENTS, PTW_CAPTURE_STACK, PTW_PART_ITSELF, PTW_AT_ENTER), PTW_CHUNK_READ, size,
		  size);
	end_chunk(text, used, size);
}

static __always_inline void capture_at_enter(struct ptw_task *state, struct task_struct *task)
{
	__u64 number = state->call.head.number;
	struct text *text = 0;
	__u32 wanted;

	state->retry = 0;
	state->has_text = 0;
	KEEP(number);
	wanted = number < PTW_NUMBERS ? cfg_descriptions[number].at_enter : 0;
	if (!wanted && !cfg_frames)
		return;
	text = take_text(state, task);
	if (!text)
		return;
	for (__u32 i = 0; i < PTW_ARGUMENTS; i++) {
		if ((wanted & (1u << i)) && capture(state, text, i, PTW_AT_ENTER, 0))
			state->retry |= 1u << i;
	}
	capture_stack(text, task);
}

/* Again what could not be read at enter (with `again`), and what the call gave back. Returns the text, or NULL. */
static __always_inline struct text *capture_at_exit(struct ptw_task *state, struct task_struct *task, int again)
{
	const volatile struct ptw_description *description = described(state->call.head.number);
	__s64 result = state->call.result;
	struct text *text = 0;
	__u32 wanted = 0;

	if (again && description)
		wanted = result < 0 ? description->at_failure : description->at_exit;
	if (!state->has_text && !wanted && !state->retry)
		return 0;
	text = take_text(state, task);
	if (!text)
		return 0;
	for (__u32 i = 0; i < PTW_ARGUMENTS; i++) {
		__u32 bit = 1u << i;
		__u64 kind;

		if ((state->retry & bit) && (!again || capture(state, text, i, PTW_AT_ENTER, 0))) {
			kind = description ? description->argument[i].kind : 0;
			put_nothing(text, WHAT(i, kind, PTW_PART_ITSELF, PTW_AT_ENTER), 0);
		}
		if ((wanted & bit) && capture(state, text, i, PTW_AT_EXIT, result)) {
			kind = description ? description->argument[i].kind : 0;
			put_nothing(text, WHAT(i, kind, PTW_PART_ITSELF, PTW_AT_EXIT), 0);
		}
	}
	state->retry = 0;
	return text;
}

/* An exec that could not be read at enter: the kernel's copies. `argument`: that of the path; argv, envp behind it. */
static __always_inline void capture_exec(struct ptw_task *state, struct task_struct *task, const char *path,
					 __u32 argument)
{
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	struct text *text = take_text(state, task);
	__u64 from, to;

	if (!text)
		return;
	if ((state->retry & (1u << argument)) && path)
		put_string(text, WHAT(argument, PTW_CAPTURE_PATH, PTW_PART_ITSELF, PTW_AT_ENTER), (__u64)path, 1);
	if (path)
		state->retry &= ~(1u << argument);
	if (state->retry & (2u << argument)) {
		from = BPF_CORE_READ(mm, arg_start);
		to = BPF_CORE_READ(mm, arg_end);
		put_bytes(text, WHAT(argument + 1, PTW_CAPTURE_WORDS, PTW_PART_ITSELF, PTW_AT_ENTER), from, to - from,
			  PTW_WORDS_SIZE);
		state->retry &= ~(2u << argument);
	}
	if (state->retry & (4u << argument)) {
		from = BPF_CORE_READ(mm, env_start);
		to = BPF_CORE_READ(mm, env_end);
		put_bytes(text, WHAT(argument + 2, PTW_CAPTURE_WORDS, PTW_PART_ITSELF, PTW_AT_ENTER), from, to - from,
			  PTW_WORDS_SIZE);
		state->retry &= ~(4u << argument);
	}
}

#endif
