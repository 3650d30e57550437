/* SPDX-License-Identifier: MIT */
/*
 * Time from the packets.
 *
 * Between two TSC packets time is an estimate, and others make estimates too: what is estimated here agrees with
 * `perf script` to the tick, so that the times of a recording do not depend on the tool that reads it. That decides
 * what the manual leaves open: an estimate that would go back is not used; cycles count from the last TSC or MTC that
 * came right behind a CYC, or from a change of frequency, at the rate measured up to the next such MTC (or the one CBR
 * says, when there is none); a TSC behind the estimate leaves the estimate as it is.
 *
 * A timer borrows the packets. Not thread-safe.
 */
#include "timer.h"

#include "cached_packets.h"
#include "config.h"
#include "handover.h"
#include "psb.h"
#include "stand_ins.h"

#include <errno.h>
#include <string.h>

/* A TSC packet has 56 bits: one that goes back by half of them wrapped. */
#define WRAP (UINT64_C(1) << 56)

/* A rate measured so much above the one CBR says is not believed. */
static const double RATE_MAX = 1.25;

int ptd_timer_init(struct ptd_timer *timer, const struct pt_config *config, const struct ptd_cpu *cpu)
{
    memset(timer, 0, sizeof *timer);
    timer->begin = config->begin;
    timer->size = (uint64_t)(config->end - config->begin);
    timer->mtc_shift = cpu->mtc_freq & 15;
    timer->ratio_tsc = cpu->cpuid_0x15_ebx;
    timer->ratio_ctc = timer->ratio_tsc ? cpu->cpuid_0x15_eax : 0;
    timer->nominal = cpu->nom_freq;
    timer->packets = pt_pkt_alloc_decoder(config);
    if (!timer->packets)
        return -ENOMEM;
    (void)pt_pkt_sync_set(timer->packets, 0);
    return 0;
}

void ptd_timer_deinit(struct ptd_timer *timer)
{
    pt_pkt_free_decoder(timer->packets);
    timer->packets = NULL;
}

/* ---- the clocks ---- */

static uint64_t crystal_to_tsc(const struct ptd_timer *timer, uint64_t ticks)
{
    return ticks / timer->ratio_ctc * timer->ratio_tsc + ticks % timer->ratio_ctc * timer->ratio_tsc / timer->ratio_ctc;
}

static double rate_by_cbr(const struct ptd_timer *timer, uint32_t cbr)
{
    return (double)timer->nominal / cbr;
}

/* An estimate becomes the time unless it would go back. */
static void estimate(struct ptd_timer *timer, uint64_t time)
{
    if (time >= timer->at.time)
        timer->at.time = time;
    timer->stamped = true;
}

/* MTC sends 8 of the bits above its shift; beyond a shift of 8 a TMA does not hold all of them. */
static uint8_t complete_mtc(uint8_t last, uint8_t mtc, uint32_t shift)
{
    uint32_t missing = 1u << (16 - shift), value = last | (mtc & ~(missing - 1));
    if (value >= mtc)
        value -= missing;
    return (uint8_t)value;
}

static uint64_t mtc_delta(const struct ptd_timer *timer, uint8_t last, uint8_t mtc)
{
    return (uint64_t)(mtc > last ? mtc - last : mtc + 256 - last) << timer->mtc_shift;
}

/*
 * Cycles and time from this MTC up to the next one that comes right behind a CYC: the rate at which cycles are to be
 * turned into ticks until then. Stops where time may have stood still.
 */
static double measure(const struct ptd_timer *timer)
{
    struct pt_packet_decoder *ahead = timer->packets;
    uint64_t back = timer->offset, at = 0, cycles = 0, delta = timer->at.ctc_delta, time = 0, reached = timer->at.time;
    uint8_t last = timer->at.last_mtc;
    uint32_t cbr = 0;
    bool after_cyc = true, fixing = timer->at.mtc_incomplete, found = false, over = false;
    struct pt_packet packet;
    while (!found && !over && pt_pkt_next(ahead, &packet, sizeof packet) > 0) {
        switch (packet.type) {
        case ppt_pad:
            continue;
        case ppt_cyc:
            cycles += packet.payload.cyc.value;
            break;
        case ppt_mtc:
            if (timer->mtc_shift > 8 && fixing)
                last = complete_mtc(last, packet.payload.mtc.ctc, timer->mtc_shift);
            fixing = false;
            delta += mtc_delta(timer, last, packet.payload.mtc.ctc);
            last = packet.payload.mtc.ctc;
            time = timer->at.ctc_time + crystal_to_tsc(timer, delta);
            over = time < reached;
            found = !over && after_cyc;
            reached = time;
            break;
        case ppt_cbr:
            over = cbr && cbr != packet.payload.cbr.ratio;
            cbr = packet.payload.cbr.ratio;
            break;
        case ppt_exstop: /* cycles are counted on while what it stands for is written */
            over = pt_pkt_get_offset(ahead, &at) < 0 || !ptd_stood_for(timer->stand_ins, at - PTD_SIZE_EXSTOP);
            break;
        case ppt_tnt_8:
        case ppt_tnt_64:
        case ppt_tip_pge:
        case ppt_tip:
        case ppt_fup:
        case ppt_psb:
        case ppt_psbend:
        case ppt_pip:
        case ppt_mode:
        case ppt_vmcs:
        case ppt_mnt:
        case ppt_ptw:
            break;
        default:
            over = true;
            break;
        }
        after_cyc = packet.type == ppt_cyc;
    }
    (void)pt_pkt_sync_set(ahead, back);
    if (!found || over || !cycles)
        return 0;
    double rate = (double)(time - timer->at.time) / (double)cycles;
    if (!cbr)
        cbr = timer->at.cbr;
    return cbr && rate > rate_by_cbr(timer, cbr) && rate / rate_by_cbr(timer, cbr) > RATE_MAX ? 0 : rate;
}

static void count_cycles_from_here(struct ptd_timer *timer)
{
    timer->at.cycle_time = timer->at.time;
    timer->at.cycles = 0;
    timer->at.ticks_per_cycle = 0;
}

static void on_tsc(struct ptd_timer *timer, uint64_t tsc)
{
    timer->at.have_tma = false;
    if (timer->at.time) {
        tsc |= timer->at.time & ~(WRAP - 1);
        timer->at.tsc = tsc;
        if (tsc < timer->at.time) {
            if (timer->at.time - tsc < WRAP / 2)
                tsc = timer->at.time;
            else
                timer->at.tsc = tsc += WRAP;
        }
    } else {
        timer->at.tsc = tsc;
    }
    timer->at.time = tsc;
    timer->stamped = true;
    if (timer->at.after_cyc)
        count_cycles_from_here(timer);
}

static void on_tma(struct ptd_timer *timer, uint16_t ctc, uint16_t fast)
{
    if (!timer->ratio_ctc)
        return;
    timer->at.last_mtc = (uint8_t)(ctc >> timer->mtc_shift);
    timer->at.ctc_time = timer->at.tsc - fast - crystal_to_tsc(timer, ctc & ((1u << timer->mtc_shift) - 1));
    timer->at.ctc_delta = 0;
    timer->at.have_tma = timer->at.mtc_incomplete = true;
}

static void on_mtc(struct ptd_timer *timer, uint8_t mtc)
{
    if (!timer->at.have_tma)
        return;
    if (timer->mtc_shift > 8 && timer->at.mtc_incomplete) {
        timer->at.last_mtc = complete_mtc(timer->at.last_mtc, mtc, timer->mtc_shift);
        timer->at.mtc_incomplete = false;
    }
    timer->at.ctc_delta += mtc_delta(timer, timer->at.last_mtc, mtc);
    timer->at.last_mtc = mtc;
    estimate(timer, timer->at.ctc_time + crystal_to_tsc(timer, timer->at.ctc_delta));
    if (timer->at.after_cyc) {
        count_cycles_from_here(timer);
        timer->at.ticks_per_cycle = measure(timer);
    }
}

static void on_cyc(struct ptd_timer *timer, uint64_t cycles)
{
    timer->at.cycles += cycles;
    double rate = timer->at.ticks_per_cycle;
    if (rate == 0 && timer->at.cbr)
        rate = rate_by_cbr(timer, timer->at.cbr);
    if (timer->at.cycle_time && rate != 0)
        estimate(timer, (uint64_t)((double)timer->at.cycle_time + (double)timer->at.cycles * rate));
}

/* ---- the packets ---- */

/* Read one packet. False: there is none. */
static bool read(struct ptd_timer *timer)
{
    if (timer->moved)
        (void)pt_pkt_sync_set(timer->packets, timer->offset);
    timer->moved = false;
    do {
        if (timer->offset >= timer->size)
            return false;
        int size = pt_pkt_next(timer->packets, &timer->packet, sizeof timer->packet);
        if (size <= 0) {
            timer->at.have_tma = false;
            return false;
        }
        timer->offset += (uint64_t)size;
    } while (timer->packet.type == ppt_pad);
    return true;
}

static void on_cbr(struct ptd_timer *timer, uint8_t ratio)
{
    if (timer->at.cbr == ratio)
        return;
    timer->at.cbr = ratio;
    timer->at.cycle_time = timer->at.time;
    timer->at.cycles = 0;
}

/* Take the time of the packet read last. */
static void take_time(struct ptd_timer *timer)
{
    const struct pt_packet *packet = &timer->packet;
    switch (packet->type) {
    case ppt_tsc:
        on_tsc(timer, packet->payload.tsc.tsc);
        break;
    case ppt_tma:
        on_tma(timer, packet->payload.tma.ctc, packet->payload.tma.fc);
        break;
    case ppt_mtc:
        on_mtc(timer, packet->payload.mtc.ctc);
        break;
    case ppt_cyc:
        on_cyc(timer, packet->payload.cyc.value);
        break;
    case ppt_cbr:
        on_cbr(timer, packet->payload.cbr.ratio);
        break;
    case ppt_stop:
        timer->at.have_tma = false;
        break;
    default:
        break;
    }
    timer->at.after_cyc = packet->type == ppt_cyc;
}

/* Behind a PSB: read to the end of its PSB+. */
static void read_psb(struct ptd_timer *timer)
{
    timer->psb_has_ip = false;
    while (read(timer)) {
        take_time(timer);
        if (timer->packet.type == ppt_fup)
            timer->psb_has_ip = ptd_first_ip(&timer->packet.payload.ip, &timer->psb_ip);
        if (timer->packet.type == ppt_psbend || timer->packet.type == ppt_ovf)
            break;
    }
    timer->cbr_said = timer->at.cbr;
}

/* An EXSTOP, or what it stands for. */
static enum ptd_next step_of_exstop(struct ptd_timer *timer)
{
    const struct ptd_stand_in *stood = ptd_stood_for(timer->stand_ins, timer->offset - PTD_SIZE_EXSTOP);
    if (stood && stood->timeless)
        return PTD_NEXT_NONE;
    timer->fup_wanted |= timer->packet.payload.exstop.ip;
    return PTD_NEXT_POWER;
}

static enum ptd_next step_of(struct ptd_timer *timer)
{
    switch (timer->packet.type) {
    case ppt_tnt_8:
    case ppt_tnt_64:
        return PTD_NEXT_TNT;
    case ppt_tip:
        return PTD_NEXT_TIP;
    case ppt_tip_pge:
        return PTD_NEXT_PGE;
    case ppt_tip_pgd:
        return PTD_NEXT_PGD;
    case ppt_fup:
        return PTD_NEXT_FUP;
    case ppt_ovf:
        return PTD_NEXT_OVF;
    case ppt_mode:
        return timer->packet.payload.mode.leaf == pt_mol_tsx ? PTD_NEXT_TSX : PTD_NEXT_NONE;
    case ppt_ptw:
        timer->fup_wanted = timer->packet.payload.ptw.ip;
        return PTD_NEXT_PTW;
    case ppt_exstop:
        return step_of_exstop(timer);
    case ppt_mwait:
        timer->fup_wanted = true;
        return PTD_NEXT_POWER;
    case ppt_pwre:
    case ppt_pwrx:
        return PTD_NEXT_POWER;
    default:
        return PTD_NEXT_NONE;
    }
}

unsigned ptd_timer_tnt(struct ptd_timer *timer)
{
    uint64_t bits;
    unsigned count, size = ptd_packet_tnt(timer->begin + timer->offset, timer->begin + timer->size, &bits, &count);
    if (!size)
        return 0;
    timer->offset += size;
    timer->moved = true;
    timer->at.after_cyc = false;
    timer->step = PTD_NEXT_TNT;
    return count;
}

enum ptd_next ptd_timer_next(struct ptd_timer *timer)
{
    timer->step = PTD_NEXT_NONE;
    while (timer->step == PTD_NEXT_NONE) {
        if (!read(timer)) {
            timer->step = PTD_NEXT_END;
            break;
        }
        take_time(timer);
        if (timer->packet.type == ppt_psb) {
            read_psb(timer);
            timer->step = timer->packet.type == ppt_psbend ? PTD_NEXT_PSB : step_of(timer);
            continue;
        }
        timer->step = step_of(timer);
        if (timer->step == PTD_NEXT_NONE && timer->at.cbr != timer->cbr_said) {
            timer->cbr_said = timer->at.cbr;
            timer->step = PTD_NEXT_CBR;
        }
    }
    return timer->step;
}

void ptd_timer_skip(struct ptd_timer *timer, uint64_t offset)
{
    while (timer->offset && timer->offset < offset && read(timer))
        take_time(timer);
    if (timer->offset != offset && pt_pkt_sync_set(timer->packets, offset) >= 0)
        timer->offset = offset;
    timer->moved = true;
    timer->step = PTD_NEXT_NONE;
    timer->fup_wanted = false;
}

void ptd_timer_begin(struct ptd_timer *timer)
{
    timer->step = PTD_NEXT_NONE;
    if (read(timer) && timer->packet.type == ppt_psb) {
        take_time(timer);
        read_psb(timer);
        if (timer->packet.type == ppt_ovf)
            timer->step = PTD_NEXT_OVF;
    }
}

/* ---- packets without flow ---- */

/* Size of the packet at `at` if it is a complete one of flow, which says nothing of time; else 0. */
static unsigned flow_packet(const uint8_t *at, const uint8_t *end)
{
    uint64_t value = 0;
    unsigned count;
    bool known;
    switch (at[0] & 31) {
    case PTD_OPC_TIP:
    case PTD_OPC_PGE:
    case PTD_OPC_PGD:
    case PTD_OPC_FUP:
        return ptd_packet_ip(at, end, &value, &known);
    default:
        return ptd_packet_tnt(at, end, &value, &count);
    }
}

/* A packet of flow was passed: what ran there is not known, but whether anything was traced. */
static void pass_flow(struct ptd_timer *timer, uint8_t packet)
{
    bool off = (packet & 31) == PTD_OPC_PGD;
    timer->at.after_cyc = false;
    timer->at.handover = (struct ptd_handover){.known = off, .state = PTD_TRACING_OFF};
}

/* Read on to `end`, for its time only; what is malformed is left out up to the next PSB. */
static void pass_to(struct ptd_timer *timer, uint64_t end)
{
    while (timer->offset < end) {
        unsigned size = flow_packet(timer->begin + timer->offset, timer->begin + end);
        if (size) {
            pass_flow(timer, timer->begin[timer->offset]);
            timer->offset += size;
            timer->moved = true;
        } else if (read(timer)) {
            take_time(timer);
        } else {
            uint64_t psb = ptd_psb_after(timer->begin, end, timer->offset + 1);
            timer->offset = psb < end ? psb : end;
            timer->moved = true;
        }
    }
}

int ptd_timing_pass(const struct ptd_cpu *cpu, const uint8_t *packets, uint64_t size,
                    const struct ptd_stand_ins *stand_ins, struct ptd_timing *timing)
{
    struct pt_config config;
    struct ptd_timer timer;
    if (!size)
        return 0;
    int error = ptd_config_init(&config, cpu, packets, size);
    if (error == 0)
        error = ptd_timer_init(&timer, &config, cpu);
    if (error < 0)
        return error;
    timer.at = *timing;
    timer.stand_ins = stand_ins;
    pass_to(&timer, size);
    *timing = timer.at;
    ptd_timer_deinit(&timer);
    return 0;
}
