/* SPDX-License-Identifier: MIT */
/*
 * Which of a trace's switches is in force.
 *
 * A switch takes place at its time, unless the kernel was traced and its symbols are known: then it says of a switch
 * before it makes it (PTD_SWITCH_TOLD) and after (PTD_SWITCH_DONE), and between the two, at __switch_to, what runs is
 * the next thread's. The times of the trace are estimates, those of records are not; so what is seen first may be either.
 * `perf script` decides in the same way, and so do we, but for two things it loses the rest of the trace by: a place that
 * is come to after the record that the switch was made (we have switched by that record, and nothing is left to do) and
 * one that no record tells of (nothing is done). After a hole perf goes by time from then on; we go on, and the first
 * place belongs to the record that is nearer.
 *
 * Works on what it is handed.
 */
#include "handover.h"

static bool is_told(const struct ptd_slice *slice, size_t number)
{
    return ptd_handover_by_place(slice) && number && slice->switches[number].when == PTD_SWITCH_TOLD;
}

static bool is_done(const struct ptd_slice *slice, size_t number)
{
    return ptd_handover_by_place(slice) && number && slice->switches[number].when == PTD_SWITCH_DONE;
}

/* A switch is in force, and none waits. */
static void make(struct ptd_handover *handover, uint64_t number)
{
    handover->running = number + 1;
    handover->pending = 0;
}

static void take_told(struct ptd_handover *handover, uint64_t number)
{
    switch ((enum ptd_tracing)handover->state) {
    case PTD_TRACING_UNKNOWN:
    case PTD_TRACING_DOUBT:
    case PTD_TRACING_ON:
        handover->pending = number + 1;
        handover->state = PTD_TRACING_TOLD;
        break;
    default:
        make(handover, number);
        break;
    }
}

static void take_done(struct ptd_handover *handover, uint64_t number)
{
    if (handover->state == PTD_TRACING_TOLD) {
        handover->state = PTD_TRACING_ON;
        handover->owed++;
    } else if (handover->state == PTD_TRACING_DOUBT) {
        handover->state = PTD_TRACING_ON;
    }
    make(handover, number);
}

void ptd_handover_init(struct ptd_handover *handover, const struct ptd_slice *slice)
{
    *handover = slice->timing.handover;
    if (handover->known && handover->taken <= slice->switch_count && handover->running <= handover->taken &&
        handover->pending <= handover->taken)
        return;
    *handover = (struct ptd_handover){.known = 1, .state = slice->offset ? PTD_TRACING_DOUBT : PTD_TRACING_OFF};
}

void ptd_handover_pass(struct ptd_handover *handover, const struct ptd_slice *slice, uint64_t time)
{
    bool begins = !handover->taken;
    uint8_t state = handover->state;
    if (begins) /* what came before is over */
        handover->state = PTD_TRACING_OFF;
    while (handover->taken < slice->switch_count &&
           (!handover->taken || slice->switches[handover->taken].tsc <= time)) {
        size_t number = (size_t)handover->taken++;
        if (is_told(slice, number))
            take_told(handover, number);
        else if (is_done(slice, number))
            take_done(handover, number);
        else
            make(handover, number);
    }
    if (begins)
        handover->state = state;
}

uint64_t ptd_handover_due(const struct ptd_handover *handover, const struct ptd_slice *slice)
{
    return handover->taken < slice->switch_count ? slice->switches[handover->taken].tsc : UINT64_MAX;
}

/*
 * The switch the kernel writes of next, whatever changes before, and though it has not written yet that the one before
 * was made; the number of switches: there is none.
 */
static size_t next_told(const struct ptd_handover *handover, const struct ptd_slice *slice)
{
    const struct ptd_switch *running = &slice->switches[handover->running ? handover->running - 1 : 0];
    size_t number = (size_t)handover->taken;
    for (; number < slice->switch_count && !is_told(slice, number); number++)
        if (is_done(slice, number) && slice->switches[number].thread != running->thread)
            return slice->switch_count;
    return number;
}

/* Whether the switch that was taken last, if it was told of, is nearer in time than the one that is told of next. */
static bool is_for_last(const struct ptd_handover *handover, const struct ptd_slice *slice, uint64_t now)
{
    size_t last = (size_t)handover->taken, next = next_told(handover, slice);
    while (last && !is_told(slice, last - 1) && !is_done(slice, last - 1))
        last--;
    if (!last || !is_told(slice, last - 1))
        return false;
    return next == slice->switch_count || now - slice->switches[last - 1].tsc < slice->switches[next].tsc - now;
}

uint64_t ptd_handover_arrive(struct ptd_handover *handover, const struct ptd_slice *slice, uint64_t now)
{
    enum ptd_tracing state = (enum ptd_tracing)handover->state;
    bool over = (state == PTD_TRACING_ON && handover->owed > 0) ||
                (state == PTD_TRACING_DOUBT && is_for_last(handover, slice, now));
    handover->state = PTD_TRACING_ON;
    if (over) {
        handover->owed = 0;
        return 0;
    }
    if (state == PTD_TRACING_ON || state == PTD_TRACING_DOUBT) {
        size_t number = next_told(handover, slice);
        if (number == slice->switch_count)
            return 0;
        make(handover, number);
        handover->taken = number + 1;
        return slice->switches[number].tsc;
    }
    handover->owed = handover->pending || state == PTD_TRACING_TOLD ? 0 : -1; /* its record may still come */
    if (handover->pending)
        make(handover, handover->pending - 1);
    return 0;
}

void ptd_handover_tell(struct ptd_handover *handover)
{
    if (handover->state == PTD_TRACING_UNKNOWN)
        handover->state = PTD_TRACING_ON;
}

void ptd_handover_go_on(struct ptd_handover *handover)
{
    if (handover->state == PTD_TRACING_OFF)
        handover->state = PTD_TRACING_UNKNOWN;
    else if (handover->state == PTD_TRACING_LOST)
        handover->state = PTD_TRACING_DOUBT;
}

void ptd_handover_turn_off(struct ptd_handover *handover)
{
    handover->state = PTD_TRACING_OFF;
    handover->owed = 0;
}

void ptd_handover_lose(struct ptd_handover *handover)
{
    if (handover->pending)
        make(handover, handover->pending - 1);
    handover->state = PTD_TRACING_LOST;
    handover->owed = 0;
}
