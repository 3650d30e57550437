/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Probes in programs (uprobes): one program is attached to all of them; the attachment's cookie is the probe's number,
 * by which its specification says what to tell. It runs in user mode's stead, between two calls of the task.
 */
#ifndef PTW_PROBES_BPF_H
#define PTW_PROBES_BPF_H

#include "kinds.bpf.h"

const volatile struct ptw_probe_spec cfg_probes[PTW_PROBES] = {};

enum registers { REGISTERS_SIZE = 168 };	/* struct pt_regs of x86-64 */

static __always_inline void read_value(struct ptw_probe *event, void *registers, __u32 at,
				       const volatile struct ptw_value *value)
{
	__u64 place = value->place;
	__u64 size = value->size;
	__u64 found = 0;
	long text;

	if (value->source == PTW_SOURCE_CONSTANT) {
		event->value[at] = value->offset;
		return;
	}
	if (place > REGISTERS_SIZE - sizeof(found))
		return;
	bpf_probe_read_kernel(&found, sizeof(found), registers + place);
	if (value->source == PTW_SOURCE_STRING) {
		text = bpf_probe_read_user_str(event->text, sizeof(event->text), (const void *)(found + value->offset));
		event->size = text > 0 ? text - 1 : 0;
		if (text <= 0)
			event->unreadable |= 1u << at;
	} else if (value->source == PTW_SOURCE_MEMORY) {
		const void *from = (const void *)(found + value->offset);

		found = 0;
		KEEP(size);
		if (size > sizeof(found))
			size = sizeof(found);
		if (bpf_probe_read_user(&found, size, from))
			event->unreadable |= 1u << at;
	}
	event->value[at] = found;
}

static __always_inline int on_probe(void *registers)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct ptw_task *state = bpf_task_storage_get(&tasks, task, 0, 0);
	__u64 probe = bpf_get_attach_cookie(registers);
	const volatile struct ptw_probe_spec *spec;
	struct ptw_probe event = {};

	KEEP(probe);
	if (!enabled || !state || probe >= PTW_PROBES)
		return 0;
	spec = &cfg_probes[probe];
	if (!(state->judged & KIND(spec->kind)))
		return 0;
	event.head.kind = spec->kind;
	event.head.number = probe;
	fill_ids(&event.head, task);
	event.t = bpf_ktime_get_ns();
	for (__u32 i = 0; i < PTW_VALUES; i++) {
		if (i < spec->count)
			read_value(&event, registers, i, &spec->value[i]);
	}
	submit_event(&event, sizeof(event), spec->kind);
	return 0;
}

#endif
