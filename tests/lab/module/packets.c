// SPDX-License-Identifier: GPL-2.0-or-later
/* The packet encoder (SDM vol. 3, 33.4). Called on the CPU whose packets they are, with interrupts off. */
#include <linux/string.h>
#include <asm/tsc.h>

#include "cpu.h"

#define RANGE_FILTER 1
#define RANGE_STOP 2

static unsigned int range_kind(const struct ptlab_cpu *cpu, unsigned int range)
{
	return cpu->ctl >> (RTIT_CTL_ADDR0_OFFSET + 4 * range) & 0xf;
}

static bool has_ranges(const struct ptlab_cpu *cpu)
{
	return cpu->ctl >> RTIT_CTL_ADDR0_OFFSET & ((1ull << 4 * PTLAB_RANGES) - 1);
}

static bool within(const struct ptlab_cpu *cpu, unsigned int range, u64 ip)
{
	return ip >= cpu->range[2 * range] && ip <= cpu->range[2 * range + 1];
}

bool ptlab_passes(const struct ptlab_cpu *cpu, u64 ip)
{
	bool any = false;

	if (!has_ranges(cpu))
		return true;
	for (unsigned int range = 0; range < PTLAB_RANGES; range++) {
		if (range_kind(cpu, range) != RANGE_FILTER)
			continue;
		if (within(cpu, range, ip))
			return true;
		any = true;
	}
	return !any;
}

bool ptlab_stops(const struct ptlab_cpu *cpu, u64 ip)
{
	if (!has_ranges(cpu))
		return false;
	for (unsigned int range = 0; range < PTLAB_RANGES; range++)
		if (range_kind(cpu, range) == RANGE_STOP && within(cpu, range, ip))
			return true;
	return false;
}

void ptlab_out(struct ptlab_cpu *cpu, const u8 *bytes, unsigned int size)
{
	if (!cpu->dropping)
		ptlab_store(cpu, bytes, size);
}

/* The cycles since the last CYC, in front of a packet that tells of execution (SDM vol. 3, 33.4.2.14): the processor runs
 * at the TSC's rate. Those that are fewer than the threshold are told with the next one's. */
static void put_cyc(struct ptlab_cpu *cpu)
{
	u64 now = rdtsc_ordered(), cycles = now - cpu->cyc;
	unsigned int threshold = (cpu->ctl & RTIT_CTL_CYC_THRESH) >> RTIT_CTL_CYC_THRESH_OFFSET, size = 1;
	u8 packet[10];

	if (!(cpu->ctl & RTIT_CTL_CYCLEACC) || (threshold && cycles < 1ull << (threshold - 1)))
		return;
	cpu->cyc = now;
	packet[0] = 3 | (cycles >> 5 ? 4 : 0) | (cycles & 0x1f) << 3;
	for (cycles >>= 5; cycles; cycles >>= 7)
		packet[size++] = (cycles >> 7 ? 1 : 0) | (cycles & 0x7f) << 1;
	ptlab_out(cpu, packet, size);
}

void ptlab_flush(struct ptlab_cpu *cpu)
{
	u8 packet = (u8)(1u << (cpu->ntnt + 1) | cpu->tnt << 1);

	if (!cpu->ntnt)
		return;
	cpu->ntnt = cpu->tnt = 0;
	put_cyc(cpu);
	ptlab_out(cpu, &packet, 1);
}

void ptlab_tnt(struct ptlab_cpu *cpu, bool taken)
{
	cpu->tnt = cpu->tnt << 1 | taken;
	if (++cpu->ntnt == 6)
		ptlab_flush(cpu);
}

/* Compressed against the last one where that is known. */
void ptlab_ip(struct ptlab_cpu *cpu, enum ptlab_ip_packet kind, u64 ip)
{
	unsigned int mode = 3, size = 6;
	u8 packet[9];

	ptlab_flush(cpu);
	if (cpu->last_ip_valid && !((ip ^ cpu->last_ip) >> 16)) {
		mode = 1;
		size = 2;
	} else if (cpu->last_ip_valid && !((ip ^ cpu->last_ip) >> 32)) {
		mode = 2;
		size = 4;
	}
	packet[0] = kind | mode << 5;
	memcpy(packet + 1, &ip, size);
	if (kind == PTLAB_TIP || kind == PTLAB_PGE)
		put_cyc(cpu);
	ptlab_out(cpu, packet, size + 1);
	cpu->last_ip = ip;
	cpu->last_ip_valid = true;
}

/* How the TSC packet before it and the crystal clock go together. */
static void put_tma(struct ptlab_cpu *cpu, u64 now)
{
	u64 crystal = now / PTLAB_TSC_RATIO, rest = now % PTLAB_TSC_RATIO;
	u8 packet[7] = { 2, 0x73, crystal, crystal >> 8, 0, rest, rest >> 8 & 1 };

	cpu->mtc = crystal;
	ptlab_out(cpu, packet, sizeof(packet));
}

static void put_tsc(struct ptlab_cpu *cpu)
{
	u64 now = rdtsc_ordered();
	u8 packet[8] = { 0x19 };

	memcpy(packet + 1, &now, 7);
	ptlab_out(cpu, packet, sizeof(packet));
	if (!cpu->dropping)
		cpu->cyc = now;
	if (cpu->ctl & RTIT_CTL_MTC_EN)
		put_tma(cpu, now);
}

static unsigned int mtc_period(const struct ptlab_cpu *cpu)
{
	return (cpu->ctl & RTIT_CTL_MTC_RANGE) >> RTIT_CTL_MTC_RANGE_OFFSET;
}

/* Time has gone on: an MTC, where the crystal clock came to another period of it. What its eight bits cannot tell (the task
 * was not running) a TSC does. */
void ptlab_time(struct ptlab_cpu *cpu)
{
	u64 period, passed;
	u8 packet[2] = { 0x59 };

	if (!(cpu->ctl & RTIT_CTL_MTC_EN) || !(cpu->ctl & RTIT_CTL_TSC_EN) || !cpu->packets || cpu->dropping)
		return;
	period = rdtsc_ordered() / PTLAB_TSC_RATIO >> mtc_period(cpu);
	passed = period - (cpu->mtc >> mtc_period(cpu));
	if (!passed)
		return;
	ptlab_flush(cpu);
	if (passed > 128) {
		put_tsc(cpu);
		return;
	}
	cpu->mtc = period << mtc_period(cpu);
	packet[1] = period;
	ptlab_out(cpu, packet, sizeof(packet));
}

static void put_mode_64bit(struct ptlab_cpu *cpu)
{
	static const u8 packet[] = { 0x99, 0x01 };

	ptlab_out(cpu, packet, sizeof(packet));
}

bool ptlab_psb_due(const struct ptlab_cpu *cpu)
{
	return !cpu->dropping &&
	       cpu->since_psb >= 2048ull << ((cpu->ctl & RTIT_CTL_PSB_FREQ) >> RTIT_CTL_PSB_FREQ_OFFSET);
}

void ptlab_psb(struct ptlab_cpu *cpu, u64 ip)
{
	static const u8 psb[] = { 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82 };
	static const u8 cbr[] = { 2, 3, 20, 0 }, no_tsx[] = { 0x99, 0x20 }, psbend[] = { 2, 0x23 };

	ptlab_flush(cpu);
	cpu->since_psb = 0;
	ptlab_out(cpu, psb, sizeof(psb));
	cpu->last_ip_valid = false;
	cpu->ncalls = 0;
	if (cpu->ctl & RTIT_CTL_TSC_EN)
		put_tsc(cpu);
	ptlab_out(cpu, cbr, sizeof(cbr));
	ptlab_out(cpu, no_tsx, sizeof(no_tsx));
	if (cpu->packets) {
		put_mode_64bit(cpu);
		ptlab_ip(cpu, PTLAB_FUP, ip);
		cpu->need_tsc = false;
	}
	ptlab_out(cpu, psbend, sizeof(psbend));
}

/* PacketEn becomes true. */
void ptlab_begin(struct ptlab_cpu *cpu, u64 ip)
{
	if (cpu->need_tsc && cpu->ctl & RTIT_CTL_TSC_EN)
		put_tsc(cpu);
	cpu->need_tsc = false;
	cpu->ncalls = 0;
	put_mode_64bit(cpu);
	ptlab_ip(cpu, PTLAB_PGE, ip);
	cpu->packets = true;
}

static void put_pgd(struct ptlab_cpu *cpu)
{
	u8 packet = PTLAB_PGD; /* without an address */

	ptlab_flush(cpu);
	ptlab_out(cpu, &packet, 1);
}

/* The instruction itself led out of the user's code: a system call. */
void ptlab_leave_call(struct ptlab_cpu *cpu)
{
	if (cpu->packets)
		put_pgd(cpu);
	cpu->context = cpu->packets = cpu->pending = false;
}

/* An interrupt or exception came before the instruction at `ip`. */
void ptlab_leave_at(struct ptlab_cpu *cpu, u64 ip)
{
	if (cpu->packets) {
		ptlab_ip(cpu, PTLAB_FUP, ip);
		put_pgd(cpu);
	}
	cpu->context = cpu->packets = cpu->pending = false;
}

/* Packets were dropped, and no longer are; execution stands at `ip`. */
void ptlab_overflow(struct ptlab_cpu *cpu, u64 ip)
{
	static const u8 packet[] = { 2, 0xf3 };

	cpu->ntnt = cpu->tnt = 0;
	cpu->ncalls = 0;
	cpu->last_ip_valid = false;
	cpu->dropping = 0;
	ptlab_out(cpu, packet, sizeof(packet));
	if (cpu->packets)
		ptlab_ip(cpu, PTLAB_FUP, ip);
}

/* TraceStop: execution reached an address that ends tracing for good. */
void ptlab_stop(struct ptlab_cpu *cpu)
{
	static const u8 packet[] = { 2, 0x83 };

	ptlab_out(cpu, packet, sizeof(packet));
	cpu->status |= RTIT_STATUS_STOPPED;
}

/* PTWRITE of 8 or 4 bytes, at `ip`. */
void ptlab_ptwrite(struct ptlab_cpu *cpu, u64 ip, u64 value, bool wide)
{
	bool fup = cpu->ctl & RTIT_CTL_FUP_ON_PTW;
	u8 packet[10] = { 2, 0x12 | wide << 5 | fup << 7 };

	if (!cpu->packets || !(cpu->ctl & RTIT_CTL_PTW_EN))
		return;
	ptlab_flush(cpu);
	memcpy(packet + 2, &value, sizeof(value));
	ptlab_out(cpu, packet, wide ? 10 : 6);
	if (fup)
		ptlab_ip(cpu, PTLAB_FUP, ip);
}

static void remember_call(struct ptlab_cpu *cpu, u64 after)
{
	if (cpu->ncalls == PTLAB_CALLS) {
		memmove(cpu->calls, cpu->calls + 1, (PTLAB_CALLS - 1) * sizeof(cpu->calls[0]));
		cpu->ncalls--;
	}
	cpu->calls[cpu->ncalls++] = after;
}

static void put_return(struct ptlab_cpu *cpu, u64 to)
{
	if (!(cpu->ctl & RTIT_CTL_DISRETC) && cpu->ncalls && cpu->calls[cpu->ncalls - 1] == to) {
		cpu->ncalls--;
		ptlab_tnt(cpu, true);
	} else {
		ptlab_ip(cpu, PTLAB_TIP, to);
	}
}

/* The packets of one instruction, `code`, that went from `from` to `to`, both inside the filters. */
void ptlab_branch(struct ptlab_cpu *cpu, const u8 *code, u64 from, u64 to)
{
	int length;

	switch (ptlab_classify(code, &length)) {
	case PTLAB_JCC:
		ptlab_tnt(cpu, to != from + length);
		break;
	case PTLAB_CALL:
		if (to != from + length) /* not the idiom that reads the program counter */
			remember_call(cpu, from + length);
		break;
	case PTLAB_CALL_INDIRECT:
		remember_call(cpu, from + length);
		ptlab_ip(cpu, PTLAB_TIP, to);
		break;
	case PTLAB_JMP_INDIRECT:
		ptlab_ip(cpu, PTLAB_TIP, to);
		break;
	case PTLAB_RET:
		put_return(cpu, to);
		break;
	case PTLAB_OTHER: case PTLAB_JMP: case PTLAB_FAR: case PTLAB_REPEATED:
		break;
	}
}
