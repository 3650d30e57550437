/* SPDX-License-Identifier: MIT */
/* libipt's configuration: blocks that end at every branch, timing, filters, errata. Pure. */
#include "config.h"

#include <errno.h>
#include <string.h>

/* Ranges that alone are traced. Not those that stop tracing: the packets say where that was, and it may go on later, in
 * the range or behind it, where libipt would drop what follows up to the next packet with an address. */
static void set_filters(struct pt_conf_addr_filter *filter, const struct ptd_cpu *cpu)
{
    uint64_t *bounds[] = {&filter->addr0_a, &filter->addr0_b, &filter->addr1_a, &filter->addr1_b,
                          &filter->addr2_a, &filter->addr2_b, &filter->addr3_a, &filter->addr3_b};
    for (int i = 0; i < 4; i++) {
        if (cpu->filter_kind[i] != PTD_FILTER_FILTER)
            continue;
        filter->config.addr_cfg |= (uint64_t)(cpu->filter_kind[i] & 0xF) << 4 * i;
        *bounds[2 * i] = cpu->filter_first[i];
        *bounds[2 * i + 1] = cpu->filter_last[i];
    }
}

int ptd_config_init(struct pt_config *config, const struct ptd_cpu *cpu, const uint8_t *packets, uint64_t size)
{
    memset(config, 0, sizeof *config);
    pt_config_init(config);
    /* libipt reads the buffer only; its type lacks the const */
    config->begin = (uint8_t *)(uintptr_t)packets;
    config->end = config->begin + size;
    config->flags.variant.block.end_on_call = 1;
    config->flags.variant.block.end_on_jump = 1;
    config->mtc_freq = cpu->mtc_freq;
    config->nom_freq = cpu->nom_freq;
    config->cpuid_0x15_eax = cpu->cpuid_0x15_eax;
    config->cpuid_0x15_ebx = cpu->cpuid_0x15_ebx;
    config->flags.variant.block.enable_tick_events = cpu->ticks != 0;
    set_filters(&config->addr_filter, cpu);
    if (cpu->intel) {
        config->cpu.vendor = pcv_intel;
        config->cpu.family = cpu->family;
        config->cpu.model = cpu->model;
        config->cpu.stepping = cpu->stepping;
        /* a processor libipt does not know has no errata it could work around */
        int error = pt_cpu_errata(&config->errata, &config->cpu);
        if (error < 0 && error != -pte_bad_cpu)
            return -EINVAL;
    }
    return 0;
}
