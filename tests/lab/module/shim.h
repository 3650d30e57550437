/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the kernel's own Intel PT driver (arch/x86/events/intel/pt.c) sees as its processor: model specific registers
 * and CPUID are those of cpu.h. Seen by driver.c alone.
 */
#ifndef PTLAB_SHIM_H
#define PTLAB_SHIM_H

#include <linux/cpu.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/perf_event.h>
#include <asm/cpufeature.h>
#include <asm/msr.h>
#include <asm/processor.h>

#include "cpu.h"

#undef rdmsrl
#undef wrmsrl
#define rdmsrl(register, value) ((value) = ptlab_rdmsr(register))
#define wrmsrl(register, value) ptlab_wrmsr((register), (value))
#define rdmsrl_safe_on_cpu(cpu, register, value) ({ *(value) = 0; 0; })
#define cpuid(leaf, a, b, c, d) ptlab_cpuid((leaf), 0, (a), (b), (c), (d))
#define cpuid_count(leaf, sub, a, b, c, d) ptlab_cpuid((leaf), (sub), (a), (b), (c), (d))
#undef boot_cpu_has
#define boot_cpu_has(feature) ((feature) == X86_FEATURE_INTEL_PT)

enum { x86_lbr_exclusive_pt };
#define x86_add_exclusive(what) ({ 0; })
#define x86_del_exclusive(what) ({ 0; })

/* These two are not exported to modules. */
#define perf_event_itrace_started(event) ((event)->attach_state |= PERF_ATTACH_ITRACE)
#define perf_output_copy_aux(handle, to, from, until) \
	(ptlab_copy_aux ? ptlab_copy_aux((handle), (to), (from), (until)) : 0)

#undef EXPORT_SYMBOL_GPL
#define EXPORT_SYMBOL_GPL(symbol)
#undef arch_initcall
#define arch_initcall(function) int ptlab_driver_init(void) { return function(); }

void intel_pt_handle_vmx(int on);
void cpu_emergency_stop_pt(void);
int is_intel_pt_event(struct perf_event *event);

#endif
