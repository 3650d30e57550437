// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The module: gives a machine without Intel PT an intel_pt PMU that traces real programs. Never unloaded.
 *
 * Its parameters, below /sys/module/ptlab/parameters/:
 *   overflow_every, overflow_length  after so many steps, drop the packets of so many
 *   inject                           bytes in hexadecimal (at most 64) to put into the next packets as they are
 *   asynchronous                     whether page faults and the timer show in the trace, as they do on a processor
 *   ranges, multiple                 (when loading) address ranges; whether ToPA has several entries
 *   bytes, overflows                 (to read) what was produced
 */
#include <linux/kernel.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/moduleparam.h>

#include "cpu.h"

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("An Intel PT processor made of software, for tests");

unsigned int ptlab_overflow_every, ptlab_overflow_length = 50, ptlab_ranges = 2, ptlab_multiple = 1;
unsigned long ptlab_bytes, ptlab_overflows;
bool ptlab_asynchronous = true;
module_param_named(overflow_every, ptlab_overflow_every, uint, 0600);
module_param_named(overflow_length, ptlab_overflow_length, uint, 0600);
module_param_named(ranges, ptlab_ranges, uint, 0400);
module_param_named(multiple, ptlab_multiple, uint, 0400);
module_param_named(asynchronous, ptlab_asynchronous, bool, 0600);
module_param_named(bytes, ptlab_bytes, ulong, 0400);
module_param_named(overflows, ptlab_overflows, ulong, 0400);

long (*ptlab_copy_aux)(struct perf_output_handle *, struct perf_output_handle *, unsigned long, unsigned long);

static u8 injected[64];
static int injected_size;
static DEFINE_RAW_SPINLOCK(injected_lock);

static int set_injected(const char *text, const struct kernel_param *unused)
{
	int size = strcspn(text, "\n") / 2, status;
	unsigned long flags;
	u8 bytes[64];

	if (size > sizeof(bytes))
		return -EINVAL;
	status = hex2bin(bytes, text, size);
	if (status)
		return status;
	raw_spin_lock_irqsave(&injected_lock, flags);
	memcpy(injected, bytes, size);
	injected_size = size;
	raw_spin_unlock_irqrestore(&injected_lock, flags);
	return 0;
}

static const struct kernel_param_ops injected_operations = { .set = set_injected };
module_param_cb(inject, &injected_operations, NULL, 0200);

/* The bytes to inject, once; returns how many. */
int ptlab_injected(u8 *bytes, int size)
{
	int found = 0;

	if (!READ_ONCE(injected_size))
		return 0;
	raw_spin_lock(&injected_lock);
	found = min(size, injected_size);
	memcpy(bytes, injected, found);
	injected_size = 0;
	raw_spin_unlock(&injected_lock);
	return found;
}

/* The address of a function that is not exported to modules. */
static void *find_function(const char *name)
{
	struct kprobe probe = { .symbol_name = name };
	void *found;

	if (register_kprobe(&probe))
		return NULL;
	found = probe.addr;
	unregister_kprobe(&probe);
	return found;
}

static int __init ptlab_init(void)
{
	int status = ptlab_oracle_init();

	if (status)
		return status;
	ptlab_copy_aux = find_function("perf_output_copy_aux");
	ptlab_debug_init();
	status = ptlab_steps_init();
	if (status)
		return status; /* the machine is of no use then: its probes may stay */
	return ptlab_driver_init();
}
module_init(ptlab_init);
