/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A processor with Intel PT, made of software: its registers (msr.c), its packets (packets.c), and the single-stepping
 * that tells it what the traced task executes (steps.c). What it traces it also counts and hashes, without any use
 * of the packets (oracle.c).
 *
 * One of these per CPU; touched only on that CPU with interrupts off. Nothing is allocated after the module is loaded.
 */
#ifndef PTLAB_CPU_H
#define PTLAB_CPU_H

#include <linux/perf_event.h>
#include <linux/sched.h>
#include <linux/types.h>
#include <asm/intel_pt.h>
#include <asm/msr-index.h>

#define PTLAB_CALLS 64 /* return addresses that return compression remembers (SDM vol. 3, 33.4.2.2) */
#define PTLAB_RANGES 4

struct ptlab_ran; /* oracle.c */

/* Where packets go with the PMU of our own (own.c): pages, in place of the tables that the kernel's driver makes. */
struct ptlab_sink {
	void **pages; /* NULL: tables */
	u64 size, head, limit, wakeup;
	bool overwrite;
};

struct ptlab_cpu {
	struct ptlab_sink sink;
	/* registers */
	u64 ctl, status, base, mask, range[2 * PTLAB_RANGES];
	u64 since_psb; /* bytes */
	/* the encoder */
	u64 last_ip;
	u64 calls[PTLAB_CALLS];
	unsigned int ncalls;
	u8 tnt, ntnt;
	bool last_ip_valid, need_tsc;
	u64 mtc, cyc; /* the crystal clock's ticks that the last MTC told of; the TSC at the last CYC */
	bool pmi; /* a region with INT is full */
	/* what is traced */
	struct task_struct *armed;
	struct ptlab_ran *ran;
	bool context;    /* ContextEn: the traced task runs user code */
	bool packets;    /* PacketEn: and its address passes the filters */
	bool pending;    /* it goes on at `resume`, which no packet says yet */
	bool stepped;    /* of this step only the interrupt it brought is to be done yet */
	u64 resume, ip;  /* ip: of the instruction being executed */
	/* forced overflows */
	u32 dropping, until_overflow;
};

DECLARE_PER_CPU(struct ptlab_cpu, ptlab_cpus);

/* Knobs and counters (main.c). */
extern unsigned int ptlab_overflow_every, ptlab_overflow_length, ptlab_ranges, ptlab_multiple;
extern unsigned long ptlab_bytes, ptlab_overflows;
extern bool ptlab_asynchronous;
int ptlab_injected(u8 *bytes, int size);

extern long (*ptlab_copy_aux)(struct perf_output_handle *, struct perf_output_handle *, unsigned long, unsigned long);

/* The driver (driver.c). */
int ptlab_driver_init(void);
void intel_pt_interrupt(void);

/* Registers (msr.c). */
u64 ptlab_rdmsr(u32 index);
void ptlab_wrmsr(u32 index, u64 value);
void ptlab_cpuid(u32 leaf, u32 sub, u32 *a, u32 *b, u32 *c, u32 *d);
void ptlab_store(struct ptlab_cpu *cpu, const u8 *bytes, unsigned int size);

static inline bool ptlab_active(const struct ptlab_cpu *cpu)
{
	return (cpu->ctl & RTIT_CTL_TRACEEN) && (cpu->ctl & RTIT_CTL_USR) && !(cpu->status & RTIT_STATUS_STOPPED);
}

/* Packets (packets.c; SDM vol. 3, 33.4). */
#define PTLAB_TSC_RATIO 256 /* TSC ticks per tick of the crystal clock (CPUID leaf 0x15) */
enum ptlab_ip_packet { PTLAB_TIP = 0x0d, PTLAB_PGE = 0x11, PTLAB_PGD = 0x01, PTLAB_FUP = 0x1d };

bool ptlab_passes(const struct ptlab_cpu *cpu, u64 ip);
bool ptlab_stops(const struct ptlab_cpu *cpu, u64 ip);
void ptlab_out(struct ptlab_cpu *cpu, const u8 *bytes, unsigned int size);
void ptlab_tnt(struct ptlab_cpu *cpu, bool taken);
void ptlab_flush(struct ptlab_cpu *cpu);
void ptlab_ip(struct ptlab_cpu *cpu, enum ptlab_ip_packet kind, u64 ip);
void ptlab_psb(struct ptlab_cpu *cpu, u64 ip);
bool ptlab_psb_due(const struct ptlab_cpu *cpu);
void ptlab_begin(struct ptlab_cpu *cpu, u64 ip);
void ptlab_leave_call(struct ptlab_cpu *cpu);
void ptlab_leave_at(struct ptlab_cpu *cpu, u64 ip);
void ptlab_overflow(struct ptlab_cpu *cpu, u64 ip);
void ptlab_stop(struct ptlab_cpu *cpu);
void ptlab_time(struct ptlab_cpu *cpu);
void ptlab_ptwrite(struct ptlab_cpu *cpu, u64 ip, u64 value, bool wide);
void ptlab_branch(struct ptlab_cpu *cpu, const u8 *code, u64 from, u64 to);

/* Branches (branch.c). */
enum ptlab_branch { PTLAB_OTHER, PTLAB_JCC, PTLAB_JMP, PTLAB_CALL, PTLAB_CALL_INDIRECT, PTLAB_JMP_INDIRECT,
		    PTLAB_RET, PTLAB_FAR, PTLAB_REPEATED };
#define PTLAB_CODE 24 /* bytes to hand in: the longest instruction, and what classifying looks at */
enum ptlab_branch ptlab_classify(const u8 *code, int *length);

/* The debug exception (debug.c). */
void ptlab_debug_init(void);

/* What is traced (steps.c). */
bool ptlab_step(u64 to);
void ptlab_arm(struct ptlab_cpu *cpu, struct task_struct *task);
void ptlab_disarm(struct ptlab_cpu *cpu);
void ptlab_catch_up(struct ptlab_cpu *cpu, u64 ip);
int ptlab_steps_init(void);
void ptlab_steps_deinit(void);

/* The oracle (oracle.c). */
struct ptlab_ran *ptlab_ran_of(struct task_struct *task);
void ptlab_ran(struct ptlab_ran *ran, u64 ip);
void ptlab_ran_unseen(struct ptlab_ran *ran);
int ptlab_oracle_init(void);
void ptlab_oracle_deinit(void);

#endif
