/* SPDX-License-Identifier: MIT */
/* Time from the packets: TSC, TMA, MTC, CYC and CBR, read in step with the flow. */
#ifndef PTD_TIMER_H
#define PTD_TIMER_H

#include "api.h"

#include <intel-pt.h>
#include <stdbool.h>

/* Packets that something waits for; all others are read over. */
enum ptd_next {
    PTD_NEXT_NONE, /* nothing read yet */
    PTD_NEXT_TNT,
    PTD_NEXT_TIP,
    PTD_NEXT_PGE,
    PTD_NEXT_PGD,
    PTD_NEXT_FUP,
    PTD_NEXT_OVF,
    PTD_NEXT_TSX,
    PTD_NEXT_PTW,
    PTD_NEXT_POWER, /* EXSTOP, MWAIT, PWRE, PWRX */
    PTD_NEXT_CBR,   /* the core's frequency changed */
    PTD_NEXT_PSB,   /* a PSB+; psb_ip says where execution stood */
    PTD_NEXT_END
};

/*
 * The time of the packets read so far, in TSC ticks. Estimates between two TSC packets follow the rules of SDM vol. 3,
 * 33.8.3: an MTC says how many crystal clock ticks have passed since the TMA, CYC packets count core clock cycles.
 */
struct ptd_timer {
    struct pt_packet_decoder *packets;
    const uint8_t *begin;
    uint64_t size;
    const struct ptd_stand_ins *stand_ins; /* in the packets; NULL: none. For who makes a timer to set. */
    /* how the clocks relate */
    uint32_t mtc_shift;
    uint32_t ratio_tsc, ratio_ctc; /* TSC ticks per so many crystal clock ticks; ratio_ctc 0: not known */
    uint32_t nominal; /* ratio of the TSC's frequency to the bus clock */
    struct ptd_timing at; /* of the packets read so far */
    uint32_t cbr_said;
    bool stamped; /* a timing packet set the time since this was last cleared */
    /* the packet read last */
    enum ptd_next step;
    struct pt_packet packet;
    uint64_t offset; /* behind it */
    bool fup_wanted; /* a FUP that belongs to the packet read last follows */
    bool moved;      /* we read on by ourselves: libipt's packet decoder is behind */
    bool psb_has_ip;
    uint64_t psb_ip;
};

/* A timer over `config`'s packets. Returns 0 or -ENOMEM; deinit also takes one whose init failed. */
int ptd_timer_init(struct ptd_timer *timer, const struct pt_config *config, const struct ptd_cpu *cpu);
void ptd_timer_deinit(struct ptd_timer *timer);

/*
 * Read on to the packet that begins at `offset` or later, for its time only. From the beginning of a slice nothing is
 * read: up to its first PSB nobody knows where packets begin.
 */
void ptd_timer_skip(struct ptd_timer *timer, uint64_t offset);

/* Read a PSB+ to decode from; the timer must stand before it. Its step is PTD_NEXT_OVF where that cut it short. */
void ptd_timer_begin(struct ptd_timer *timer);

/* Read on to the next packet something waits for. */
enum ptd_next ptd_timer_next(struct ptd_timer *timer);

/* Read the next packet if it is a TNT: its bits, 0 when it is another one, which is still to be read. */
unsigned ptd_timer_tnt(struct ptd_timer *timer);

#endif
