// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The processor's registers and its output to memory (SDM vol. 3, 33.2.7 and 33.2.8). The driver reads and writes them
 * on the CPU they belong to; interrupts are off here.
 */
#include <linux/io.h>
#include <linux/irqflags.h>
#include <linux/kernel.h>
#include <linux/percpu.h>
#include <linux/string.h>
#include <asm/processor.h>

#include "cpu.h"

DEFINE_PER_CPU(struct ptlab_cpu, ptlab_cpus);

/* A Table of Physical Addresses entry (SDM vol. 3, figure 33-2). */
#define TOPA_END BIT_ULL(0)
#define TOPA_INT BIT_ULL(2)
#define TOPA_STOP BIT_ULL(4)
#define TOPA_ADDRESS GENMASK_ULL(51, 12)

static u64 topa_size(u64 entry)
{
	return 4096ull << (entry >> 6 & 15);
}

static void set_place(struct ptlab_cpu *cpu, u64 low, u64 offset)
{
	cpu->mask = (low & 0xffffffff) | offset << 32;
}

static void store_single(struct ptlab_cpu *cpu, const u8 *bytes, unsigned int size)
{
	u64 limit = (cpu->mask & 0xffffffff) | 0x7f, offset = cpu->mask >> 32;
	u8 *area = phys_to_virt(cpu->base);

	while (size--) {
		area[offset] = *bytes++;
		offset = offset == limit ? 0 : offset + 1;
	}
	set_place(cpu, cpu->mask, offset);
}

/* The region is full. False: the trace stops here. */
static bool next_region(struct ptlab_cpu *cpu, u64 entry, u64 index, u64 offset)
{
	const u64 *table = phys_to_virt(cpu->base);

	if (entry & TOPA_INT)
		cpu->pmi = true;
	if (entry & TOPA_STOP) {
		cpu->status |= RTIT_STATUS_STOPPED;
		set_place(cpu, cpu->mask, offset);
		return false;
	}
	index++;
	if (table[index] & TOPA_END) {
		cpu->base = table[index] & TOPA_ADDRESS;
		index = 0;
	}
	set_place(cpu, 0x7f | index << 7, 0);
	return true;
}

static void store_pages(struct ptlab_cpu *cpu, const u8 *bytes, u64 size)
{
	struct ptlab_sink *sink = &cpu->sink;

	while (size) {
		u64 offset = sink->head % sink->size, part = min_t(u64, size, PAGE_SIZE - offset % PAGE_SIZE);

		if (!sink->overwrite)
			part = min(part, sink->limit - sink->head);
		if (!part) {
			cpu->status |= RTIT_STATUS_STOPPED;
			break;
		}
		memcpy(sink->pages[offset >> PAGE_SHIFT] + offset % PAGE_SIZE, bytes, part);
		ptlab_bytes += part;
		sink->head += part;
		bytes += part;
		size -= part;
	}
	cpu->pmi |= !sink->overwrite && (sink->head >= sink->wakeup || size);
}

void ptlab_store(struct ptlab_cpu *cpu, const u8 *bytes, unsigned int size)
{
	if (cpu->status & (RTIT_STATUS_STOPPED | RTIT_STATUS_ERROR))
		return;
	cpu->since_psb += size;
	if (cpu->sink.pages) {
		store_pages(cpu, bytes, size);
		return;
	}
	if (!(cpu->ctl & RTIT_CTL_TOPA)) {
		ptlab_bytes += size;
		store_single(cpu, bytes, size);
		return;
	}
	while (size) {
		u64 index = (u32)cpu->mask >> 7, offset = cpu->mask >> 32;
		u64 entry = ((const u64 *)phys_to_virt(cpu->base))[index];
		u64 part = min_t(u64, size, topa_size(entry) - offset);

		memcpy(phys_to_virt(entry & TOPA_ADDRESS) + offset, bytes, part);
		ptlab_bytes += part;
		bytes += part;
		size -= part;
		offset += part;
		if (offset < topa_size(entry))
			set_place(cpu, 0x7f | index << 7, offset);
		else if (!next_region(cpu, entry, index, offset))
			return;
	}
}

static void switch_off(struct ptlab_cpu *cpu)
{
	if (cpu->dropping) {
		cpu->packets = false; /* what was executed last is not known */
		ptlab_overflow(cpu, 0);
	}
	if (cpu->armed == current) { /* else on_switch() has been here: what is armed is the next task */
		ptlab_catch_up(cpu, task_pt_regs(current)->ip);
		if (cpu->context)
			ptlab_leave_at(cpu, task_pt_regs(current)->ip);
	}
	cpu->context = cpu->packets = cpu->pending = false;
	ptlab_flush(cpu);
	ptlab_disarm(cpu);
}

static void switch_on(struct ptlab_cpu *cpu)
{
	cpu->last_ip_valid = cpu->pmi = false;
	cpu->need_tsc = true;
	cpu->ntnt = cpu->tnt = 0;
	cpu->context = cpu->packets = cpu->pending = false;
	if (!cpu->since_psb)
		ptlab_psb(cpu, 0);
	ptlab_arm(cpu, current);
}

static void write_ctl(struct ptlab_cpu *cpu, u64 value)
{
	bool was = cpu->ctl & RTIT_CTL_TRACEEN, now = value & RTIT_CTL_TRACEEN;

	if (was && !now)
		switch_off(cpu);
	cpu->ctl = value;
	if (!was && now && ptlab_active(cpu))
		switch_on(cpu);
}

u64 ptlab_rdmsr(u32 index)
{
	struct ptlab_cpu *cpu = this_cpu_ptr(&ptlab_cpus);

	switch (index) {
	case MSR_IA32_RTIT_CTL: return cpu->ctl;
	case MSR_IA32_RTIT_STATUS: return (cpu->status & 0xffffffff) | (cpu->since_psb & 0x1ffff) << 32;
	case MSR_IA32_RTIT_OUTPUT_BASE: return cpu->base;
	case MSR_IA32_RTIT_OUTPUT_MASK: return cpu->mask;
	case MSR_PLATFORM_INFO: return 20 << 8; /* the ratio of TSC to bus clock */
	}
	return 0;
}

void ptlab_wrmsr(u32 index, u64 value)
{
	struct ptlab_cpu *cpu;
	unsigned long flags;

	local_irq_save(flags);
	cpu = this_cpu_ptr(&ptlab_cpus);
	switch (index) {
	case MSR_IA32_RTIT_CTL: write_ctl(cpu, value); break;
	case MSR_IA32_RTIT_STATUS:
		cpu->status = value & 0xffffffff;
		cpu->since_psb = value >> 32 & 0x1ffff;
		break;
	case MSR_IA32_RTIT_OUTPUT_BASE: cpu->base = value; break;
	case MSR_IA32_RTIT_OUTPUT_MASK: cpu->mask = value; break;
	case MSR_IA32_RTIT_ADDR0_A ... MSR_IA32_RTIT_ADDR3_B: cpu->range[index - MSR_IA32_RTIT_ADDR0_A] = value; break;
	}
	local_irq_restore(flags);
}

/* Leaf 0x14: what this processor's Intel PT can do (SDM vol. 3, table 33-11). Leaf 0x15: its crystal clock. */
void ptlab_cpuid(u32 leaf, u32 sub, u32 *a, u32 *b, u32 *c, u32 *d)
{
	*a = *b = *c = *d = 0;
	if (leaf == 0x15) {
		*a = 1;
		*b = PTLAB_TSC_RATIO;
	}
	if (leaf != 0x14)
		return;
	if (sub == 0) {
		*a = 1;
		*b = BIT(0) | BIT(1) | BIT(2) | BIT(3) | BIT(4); /* CR3 filter, PSB and CYC, filters, MTC, PTWRITE */
		*c = BIT(0) | (ptlab_multiple ? BIT(1) : 0) | BIT(2); /* ToPA, with several entries, single range */
	} else if (sub == 1) {
		*a = ptlab_ranges | 0xffffu << 16; /* all periods of MTC */
		*b = 0x3f << 16 | 0x1fff;          /* PSB periods of 2 to 64 KB; CYC thresholds up to 2048 */
	}
}
