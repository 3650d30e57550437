/* SPDX-License-Identifier: MIT */
/* Which of a trace's switches is in force: by time, or where the kernel goes from one thread to the next. */
#ifndef PTD_HANDOVER_H
#define PTD_HANDOVER_H

#include "api.h"

#include <stdbool.h>

/* What is known of the trace, as far as switches are concerned; `state` of a struct ptd_handover. */
enum ptd_tracing {
    PTD_TRACING_OFF,     /* nothing is traced: switches take place at their time */
    PTD_TRACING_LOST,    /* nothing is known of what was traced: the same */
    PTD_TRACING_UNKNOWN, /* it was turned on in the middle of something: the kernel may have written of a switch before */
    PTD_TRACING_DOUBT,   /* what came before is not known: a switch that was taken may still have to come to its place */
    PTD_TRACING_ON,
    PTD_TRACING_TOLD     /* the kernel has written of a switch, and is on its way there */
};

/* Whether places count in a slice, not time alone. */
static inline bool ptd_handover_by_place(const struct ptd_slice *slice)
{
    return slice->switch_ip != 0;
}

/* Where a slice begins: go on from what is known there, or with nothing. */
void ptd_handover_init(struct ptd_handover *handover, const struct ptd_slice *slice);

/* It is `time`: take the switches that have come by then. The first is there from the beginning on. */
void ptd_handover_pass(struct ptd_handover *handover, const struct ptd_slice *slice, uint64_t time);

/* The time at which the next switch comes; UINT64_MAX: never. */
uint64_t ptd_handover_due(const struct ptd_handover *handover, const struct ptd_slice *slice);

/*
 * A branch leads to `slice->switch_ip` at `now`, by the trace's estimate. Returns the time at which the kernel wrote of
 * the switch if that is still to come by the estimate, which is late then; 0: nothing is said of time.
 */
uint64_t ptd_handover_arrive(struct ptd_handover *handover, const struct ptd_slice *slice, uint64_t now);

/* A call leads to `slice->tell_ip`: the kernel writes of a switch there. */
void ptd_handover_tell(struct ptd_handover *handover);

/* Execution went on by a branch, or tracing was turned on. */
void ptd_handover_go_on(struct ptd_handover *handover);

/* Tracing was turned off. */
void ptd_handover_turn_off(struct ptd_handover *handover);

/* What ran in the kernel from here on is not known. */
void ptd_handover_lose(struct ptd_handover *handover);

#endif
