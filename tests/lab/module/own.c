// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * An intel_pt PMU of our own, for kernels whose driver's source is not to be had: the same processor (cpu.h), without
 * address filters. Written against linux/perf_event.h alone; what user space sees of it is as the kernel's driver has
 * it (Documentation/ABI/testing/sysfs-bus-event_source-devices-*).
 *
 * Runs on the CPU of the event with interrupts off, but for what is called when memory is mapped and unmapped.
 */
#include <linux/device.h>
#include <linux/module.h>
#include <linux/perf_event.h>
#include <linux/slab.h>

#include "cpu.h"

struct buffer {
	void **pages;
	int count;
	bool overwrite;
};

struct own {
	struct perf_output_handle handle;
	u64 start; /* where its writing began */
	bool on;
};

static DEFINE_PER_CPU(struct own, owns);
static struct pmu own_pmu;

/* --- what sysfs says --- */

/* mtc is a format, too: the names of these are their own. */
#define CAPABILITY(name, value)                                                                            \
	static ssize_t cap_##name##_show(struct device *device, struct device_attribute *unused, char *text) \
	{                                                                                                  \
		return sprintf(text, "%x\n", value);                                                       \
	}                                                                                                  \
	static struct device_attribute cap_##name = __ATTR(name, 0444, cap_##name##_show, NULL)
CAPABILITY(psb_cyc, 1);
CAPABILITY(mtc, 1);
CAPABILITY(ptwrite, 1);
CAPABILITY(topa_output, 1);
CAPABILITY(topa_multiple_entries, 1);
CAPABILITY(mtc_periods, 0xffff);
CAPABILITY(cycle_thresholds, 0x1fff);
CAPABILITY(psb_periods, 0x3f);

static ssize_t max_nonturbo_ratio_show(struct device *device, struct device_attribute *unused, char *text)
{
	return sprintf(text, "%u\n", 20);
}
static DEVICE_ATTR_RO(max_nonturbo_ratio);

static ssize_t tsc_art_ratio_show(struct device *device, struct device_attribute *unused, char *text)
{
	return sprintf(text, "%u:1\n", PTLAB_TSC_RATIO);
}
static DEVICE_ATTR_RO(tsc_art_ratio);

static struct attribute *capabilities[] = {
	&cap_psb_cyc.attr, &cap_mtc.attr, &cap_ptwrite.attr, &cap_topa_output.attr,
	&cap_topa_multiple_entries.attr, &cap_mtc_periods.attr, &cap_cycle_thresholds.attr,
	&cap_psb_periods.attr, NULL };

PMU_FORMAT_ATTR(pt, "config:0");
PMU_FORMAT_ATTR(cyc, "config:1");
PMU_FORMAT_ATTR(fup_on_ptw, "config:5");
PMU_FORMAT_ATTR(mtc, "config:9");
PMU_FORMAT_ATTR(tsc, "config:10");
PMU_FORMAT_ATTR(noretcomp, "config:11");
PMU_FORMAT_ATTR(ptw, "config:12");
PMU_FORMAT_ATTR(branch, "config:13");
PMU_FORMAT_ATTR(mtc_period, "config:14-17");
PMU_FORMAT_ATTR(cyc_thresh, "config:19-22");
PMU_FORMAT_ATTR(psb_period, "config:24-27");

static struct attribute *formats[] = {
	&format_attr_pt.attr, &format_attr_cyc.attr, &format_attr_fup_on_ptw.attr, &format_attr_mtc.attr,
	&format_attr_tsc.attr, &format_attr_noretcomp.attr, &format_attr_ptw.attr, &format_attr_branch.attr,
	&format_attr_mtc_period.attr, &format_attr_cyc_thresh.attr, &format_attr_psb_period.attr, NULL };
static struct attribute *times[] = { &dev_attr_max_nonturbo_ratio.attr, &dev_attr_tsc_art_ratio.attr, NULL };

static const struct attribute_group capability_group = { .name = "caps", .attrs = capabilities };
static const struct attribute_group format_group = { .name = "format", .attrs = formats };
static const struct attribute_group time_group = { .attrs = times };
static const struct attribute_group *groups[] = { &capability_group, &format_group, &time_group, NULL };

#define KNOWN (RTIT_CTL_CYCLEACC | RTIT_CTL_FUP_ON_PTW | RTIT_CTL_MTC_EN | RTIT_CTL_TSC_EN | RTIT_CTL_DISRETC | \
	       RTIT_CTL_PTW_EN | RTIT_CTL_BRANCH_EN | RTIT_CTL_MTC_RANGE | RTIT_CTL_CYC_THRESH | RTIT_CTL_PSB_FREQ)

/* --- memory --- */

static void *setup_aux(struct perf_event *event, void **pages, int count, bool overwrite)
{
	struct buffer *made = kzalloc(sizeof(*made), GFP_KERNEL);

	if (made)
		*made = (struct buffer){ pages, count, overwrite };
	return made;
}

static void free_aux(void *made)
{
	kfree(made);
}

/* --- tracing --- */

static bool begin(struct own *own, struct perf_event *event)
{
	struct ptlab_sink *sink = &this_cpu_ptr(&ptlab_cpus)->sink;
	const struct buffer *buffer = perf_aux_output_begin(&own->handle, event);

	if (!buffer)
		return false;
	own->start = own->handle.head;
	*sink = (struct ptlab_sink){
		.pages = buffer->pages, .size = (u64)buffer->count << PAGE_SHIFT, .head = own->start,
		.limit = own->start + own->handle.size, .wakeup = own->handle.wakeup, .overwrite = buffer->overwrite };
	if (!event->hw.config) { /* not before there is memory: the first packets are a PSB */
		event->hw.config = 1;
		event->attach_state |= PERF_ATTACH_ITRACE;
		ptlab_wrmsr(MSR_IA32_RTIT_STATUS, 0);
	}
	ptlab_wrmsr(MSR_IA32_RTIT_STATUS, ptlab_rdmsr(MSR_IA32_RTIT_STATUS) & ~(u64)RTIT_STATUS_STOPPED);
	ptlab_wrmsr(MSR_IA32_RTIT_CTL, RTIT_CTL_TRACEEN | RTIT_CTL_USR | (event->attr.config & KNOWN));
	return true;
}

static void end(struct own *own)
{
	struct ptlab_sink *sink = &this_cpu_ptr(&ptlab_cpus)->sink;
	u64 produced;

	ptlab_wrmsr(MSR_IA32_RTIT_CTL, 0);
	produced = sink->head - own->start;
	if (ptlab_rdmsr(MSR_IA32_RTIT_STATUS) & RTIT_STATUS_STOPPED)
		perf_aux_output_flag(&own->handle, PERF_AUX_FLAG_TRUNCATED);
	if (sink->overwrite) {
		own->handle.head = sink->head % sink->size;
		produced = min(produced, sink->size);
	}
	sink->pages = NULL;
	perf_aux_output_end(&own->handle, produced);
}

/* The ring is to be looked at, or is full. */
void intel_pt_interrupt(void)
{
	struct own *own = this_cpu_ptr(&owns);
	struct perf_event *event = own->handle.event;

	if (!own->on || !event)
		return;
	end(own);
	own->on = begin(own, event);
	if (!own->on)
		event->hw.state = PERF_HES_STOPPED;
}

static void start(struct perf_event *event, int flags)
{
	struct own *own = this_cpu_ptr(&owns);

	own->on = begin(own, event);
	event->hw.state = own->on ? 0 : PERF_HES_STOPPED;
}

static void stop(struct perf_event *event, int flags)
{
	struct own *own = this_cpu_ptr(&owns);

	if (own->on && own->handle.event == event)
		end(own);
	own->on = false;
	event->hw.state = PERF_HES_STOPPED;
}

static int add(struct perf_event *event, int flags)
{
	if (this_cpu_ptr(&owns)->handle.event)
		return -EBUSY;
	event->hw.state = PERF_HES_STOPPED;
	if (flags & PERF_EF_START)
		start(event, 0);
	return flags & PERF_EF_START && event->hw.state ? -EINVAL : 0;
}

static void del(struct perf_event *event, int flags)
{
	stop(event, PERF_EF_UPDATE);
}

static void read_count(struct perf_event *event)
{
}

static int init_event(struct perf_event *event)
{
	return event->attr.type == own_pmu.type ? 0 : -ENOENT;
}

int ptlab_driver_init(void)
{
	own_pmu = (struct pmu){
		.module = THIS_MODULE, .capabilities = PERF_PMU_CAP_EXCLUSIVE | PERF_PMU_CAP_ITRACE,
		.attr_groups = groups, .task_ctx_nr = perf_sw_context, .event_init = init_event, .add = add, .del = del,
		.start = start, .stop = stop, .read = read_count, .setup_aux = setup_aux, .free_aux = free_aux };
	return perf_pmu_register(&own_pmu, "intel_pt", -1);
}
