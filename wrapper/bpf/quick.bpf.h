/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Quick calls: those of which at most PTW_QUICK structures or buffers are captured (read, write, fstat, ...). These are
 * put behind the call in the task's own state, which is one look-up less at each stage and one copy less at the end than
 * a text of their own. Not with call stacks, nor with buffers that are longer than the room of one.
 */
#ifndef PTW_QUICK_BPF_H
#define PTW_QUICK_BPF_H

#include "capture.bpf.h"

static __always_inline int is_quick(__u64 number)
{
	if (cfg_frames || cfg_capture > PTW_STRUCT_LIMIT)
		return 0;
	KEEP(number);
	return number < PTW_NUMBERS && cfg_descriptions[number].quick;
}

/* Capture argument `i` behind what is there. Returns 0, or -1 when its memory could not be read. */
__noinline int quick_capture(struct ptw_task *state, __u64 i, __u32 when, __s64 result)
{
	const volatile struct ptw_argument *argument;
	__u64 number, pointer, units, size, kept, used;
	struct ptw_chunk *chunk;

	if (!state)
		return 0;
	number = state->call.head.number;
	KEEP(number);
	KEEP(i);
	if (number >= PTW_NUMBERS || i >= PTW_ARGUMENTS)
		return 0;
	argument = &cfg_descriptions[number].argument[i];
	pointer = state->call.args[i];
	if (!pointer || (argument->kind == PTW_CAPTURE_BUFFER && !cfg_capture))
		return 0;
	units = units_of(argument, &state->call, result);
	if (units > 1u << 31)
		units = 0;
	size = units * argument->unit;
	if (!size)
		return 0;
	kept = argument->kind == PTW_CAPTURE_BUFFER ? cfg_capture : PTW_STRUCT_LIMIT;
	if (kept > size)
		kept = size;
	KEEP(kept);
	if (kept > PTW_STRUCT_LIMIT)
		kept = PTW_STRUCT_LIMIT;
	used = state->used;
	KEEP(used);
	if (used > (PTW_QUICK - 1) * (sizeof(*chunk) + PTW_STRUCT_LIMIT))
		return 0;	/* never: see descriptions() of syscall_arguments.py */
	chunk = (void *)(state->quick + used);
	if (kept && bpf_probe_read_user(chunk + 1, kept, (const void *)pointer))
		return -1;
	fill_what(chunk, WHAT(i, argument->kind, PTW_PART_ITSELF, when), PTW_CHUNK_READ, kept, size);
	state->used = used + sizeof(*chunk) + ((kept + 7) & ~7ull);
	return 0;
}

/* Say that an argument's memory could not be read. */
__noinline int quick_nothing(struct ptw_task *state, __u64 i, __u32 when)
{
	__u64 number, used;

	if (!state)
		return 0;
	number = state->call.head.number;
	used = state->used;
	KEEP(number);
	KEEP(i);
	KEEP(used);
	if (number >= PTW_NUMBERS || i >= PTW_ARGUMENTS ||
	    used > (PTW_QUICK - 1) * (sizeof(struct ptw_chunk) + PTW_STRUCT_LIMIT))
		return 0;
	fill_what((void *)(state->quick + used),
		  WHAT(i, cfg_descriptions[number].argument[i].kind, PTW_PART_ITSELF, when), PTW_CHUNK_UNREADABLE, 0, 0);
	state->used = used + sizeof(struct ptw_chunk);
	return 0;
}

static __always_inline void quick_at_enter(struct ptw_task *state)
{
	__u64 number = state->call.head.number;
	__u32 wanted;

	state->used = 0;
	KEEP(number);
	wanted = number < PTW_NUMBERS ? cfg_descriptions[number].at_enter : 0;
	for (__u32 i = 0; wanted && i < PTW_ARGUMENTS; i++) {
		if ((wanted & (1u << i)) && quick_capture(state, i, PTW_AT_ENTER, 0))
			state->retry |= 1u << i;
	}
}

/* Again what could not be read at enter (with `again`), and what the call gave back. */
static __always_inline void quick_at_exit(struct ptw_task *state, int again)
{
	const volatile struct ptw_description *description = described(state->call.head.number);
	__s64 result = state->call.result;
	__u32 retry = state->retry;
	__u32 wanted = 0;

	if (again && description)
		wanted = result < 0 ? description->at_failure : description->at_exit;
	if (!(wanted | retry))
		return;
	for (__u32 i = 0; i < PTW_ARGUMENTS; i++) {
		__u32 bit = 1u << i;

		if ((retry & bit) && (!again || quick_capture(state, i, PTW_AT_ENTER, 0)))
			quick_nothing(state, i, PTW_AT_ENTER);
		if ((wanted & bit) && quick_capture(state, i, PTW_AT_EXIT, result))
			quick_nothing(state, i, PTW_AT_EXIT);
	}
	state->retry = 0;
}

#endif
