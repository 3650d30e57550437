/* SPDX-License-Identifier: MIT */
/*
 * Packets and flow, side by side.
 *
 * libipt decodes ahead and tells one time a query. When exactly a time holds is known from the packets: the branch
 * that used the first bit of a TNT, or a TIP, ran when that packet was written; what came before it ran after the
 * packet before. So each block is held against the packets it used. Where the two do not go together (after errors
 * of which libipt knows more) nothing is said about time until the next PSB.
 *
 * A moment that is a branch's is marked so: it holds from the last instruction of the block before it.
 */
#include "pace.h"

#include "config.h"

#include <string.h>

int ptd_pace_init(struct ptd_pace *pace, const struct ptd_cpu *cpu, const struct ptd_slice *slice)
{
    struct pt_config config;
    memset(pace, 0, sizeof *pace);
    int error = ptd_config_init(&config, cpu, slice->packets, slice->size);
    if (error == 0)
        error = ptd_timer_init(&pace->timer, &config, cpu);
    pace->timer.stand_ins = slice->stand_ins;
    pace->timer.at = slice->timing;
    pace->now = slice->timing.now;
    pace->latest = slice->timing.latest > pace->now ? slice->timing.latest : pace->now;
    pace->due = UINT64_MAX;
    pace->arrival = -1;
    pace->since = slice->timing.since;
    return error;
}

void ptd_pace_deinit(struct ptd_pace *pace)
{
    ptd_timer_deinit(&pace->timer);
}

/* ---- moments ---- */

/* Keep a moment until it is known whose it is. */
static void hold(struct ptd_pace *pace, const struct ptd_turn *turn)
{
    struct ptd_turn *last = pace->turn_count ? &pace->turns[pace->turn_count - 1] : NULL;
    bool same = last && last->next == turn->next && last->before == turn->before;
    if (!last || last->arrival || (pace->turn_count < PTD_PACE_TURNS && !same))
        last = &pace->turns[pace->turn_count++];
    *last = *turn;
}

/* An arrival becomes a turn before what is said of the place `before` instructions before `next`, unless it is later. */
static void arrive_before(struct ptd_pace *pace, int64_t next, int32_t before)
{
    int64_t arrival = pace->arrival;
    if (arrival < 0 || next < arrival || (next == arrival && before))
        return;
    pace->arrival = -1;
    if (pace->turn_count <= PTD_PACE_TURNS)
        pace->turns[pace->turn_count++] = (struct ptd_turn){.next = arrival, .arrival = true, .time = pace->now};
}

static void say(struct ptd_pace *pace, struct ptd_rows *rows, int64_t next, int32_t before, uint64_t time, bool back)
{
    if (!time || time == pace->now)
        return;
    arrive_before(pace, next, before);
    pace->now = time;
    if (time > pace->latest)
        pace->latest = time;
    const struct ptd_turn turn = {.next = next, .before = before, .back = back, .time = time};
    if (time >= pace->due || pace->turn_count)
        hold(pace, &turn);
    else
        ptd_rows_moment(rows, next, time, before);
}

static void go_on_to(struct ptd_pace *pace, struct ptd_rows *rows, int64_t next, int32_t before, uint64_t time)
{
    if (time > pace->now)
        say(pace, rows, next, before, time, false);
}

/* Time goes on to that of the packets read so far. */
static void go_on(struct ptd_pace *pace, struct ptd_rows *rows, int64_t next, int32_t before)
{
    go_on_to(pace, rows, next, before, pace->timer.at.time);
}

/* A PSB is at the time of its TSC, whatever was estimated before. */
static void go_on_by_psb(struct ptd_pace *pace, struct ptd_rows *rows, int64_t next, int32_t before)
{
    go_on_to(pace, rows, next, before, pace->timer.at.tsc ? pace->timer.at.tsc : pace->timer.at.time);
}

/* The same, where a time may be long ago: what ran since is worth half a tick of the bus clock an instruction. */
static void guess_after(struct ptd_pace *pace, struct ptd_rows *rows, int64_t next, int32_t before, uint64_t since)
{
    uint64_t more = since << 1;
    if (pace->timer.at.cbr && pace->timer.nominal)
        more = more * pace->timer.nominal / pace->timer.at.cbr;
    if (pace->timer.at.time)
        say(pace, rows, next, before, pace->timer.at.time + more, true);
}

static void guess(struct ptd_pace *pace, struct ptd_rows *rows, int64_t next, int32_t before)
{
    guess_after(pace, rows, next, before, pace->since);
}

/* ---- packets ---- */

static void set_mark(struct ptd_pace *pace, int64_t next, int32_t before)
{
    arrive_before(pace, next, before);
    pace->mark = next;
    pace->mark_before = before;
}

static void settle(struct ptd_pace *pace, int64_t next)
{
    pace->since += pace->walked;
    pace->walked = 0;
    set_mark(pace, next, 0);
    pace->behind_count = 0;
}

static void use(struct ptd_pace *pace, int64_t next)
{
    pace->held = false;
    settle(pace, next);
}

/* Index of the instruction at `ip` in a block; its number of instructions when none is there. */
static uint32_t index_of(struct ptd_walker *walker, const struct ptd_pace_block *block, uint64_t ip)
{
    uint8_t lengths[UINT16_MAX];
    struct ptd_walk walk;
    uint64_t at = block->ip;
    if (ip == at)
        return 0;
    ptd_walker_walk(walker, block->ip, (enum pt_exec_mode)block->mode, block->instructions, lengths, &walk);
    for (uint32_t i = 0; i < walk.instructions; i++) {
        if (at == ip)
            return i;
        at += lengths[i];
    }
    return block->instructions;
}

/* A PSB in mid-stream was passed behind all that ran up to the block `next`. */
static void pass_psb_at(struct ptd_pace *pace, struct ptd_rows *rows, int64_t next)
{
    pace->since += pace->timer.stamped ? 0 : pace->walked;
    pace->walked = 0;
    set_mark(pace, next, 0);
    go_on_by_psb(pace, rows, next, 0);
}

/* A PSB in mid-stream: what runs from where it says that execution stood on runs then. */
static void pass_psb(struct ptd_pace *pace, struct ptd_rows *rows)
{
    uint64_t ip = pace->timer.psb_ip, walked = 0;
    for (uint32_t i = 0; pace->timer.psb_has_ip && i < pace->behind_count; i++) {
        const struct ptd_pace_block *block = &pace->behind[i];
        if (ip < block->ip || ip > block->end_ip)
            continue;
        uint32_t index = index_of(pace->walker, block, ip);
        if (index == block->instructions)
            continue;
        for (uint32_t later = i + 1; later < pace->behind_count; later++)
            walked += pace->behind[later].instructions;
        pace->walked = walked + block->instructions - index;
        set_mark(pace, index ? block->next : block->next - 1, (int32_t)(index ? block->instructions - index : 0));
        go_on_by_psb(pace, rows, pace->mark, pace->mark_before);
        return;
    }
    pace->since += pace->timer.stamped ? 0 : pace->walked;
    pace->walked = 0;
    if (pace->behind_count)
        set_mark(pace, pace->behind[pace->behind_count - 1].next, 0);
    go_on_by_psb(pace, rows, pace->mark, pace->mark_before);
}

/* Read a packet. One that only says something about time is used; another is held. A PSB is before `next`; -1: look. */
static void advance_to(struct ptd_pace *pace, struct ptd_rows *rows, int64_t next)
{
    pace->timer.stamped = false;
    enum ptd_next step = ptd_timer_next(&pace->timer);
    if (pace->timer.stamped)
        pace->since = 0;
    if (step == PTD_NEXT_PSB && next >= 0) {
        pass_psb_at(pace, rows, next);
    } else if (step == PTD_NEXT_PSB) {
        pass_psb(pace, rows);
    } else if (step == PTD_NEXT_CBR) {
        go_on(pace, rows, pace->mark, pace->mark_before);
    } else if (step == PTD_NEXT_FUP && pace->timer.fup_wanted) {
        pace->timer.fup_wanted = false;
        go_on(pace, rows, pace->mark, pace->mark_before);
    } else {
        pace->held = true;
    }
}

static void advance(struct ptd_pace *pace, struct ptd_rows *rows)
{
    advance_to(pace, rows, -1);
}

/* The next packet that something has to happen for. */
static enum ptd_next peek(struct ptd_pace *pace, struct ptd_rows *rows)
{
    while (!pace->held)
        advance(pace, rows);
    return pace->timer.step;
}

/* Use the next packet if it is a `wanted` one. */
static bool take(struct ptd_pace *pace, struct ptd_rows *rows, enum ptd_next wanted, int64_t next)
{
    if (peek(pace, rows) != wanted)
        return false;
    use(pace, next);
    return true;
}

/* Whether the IP packet read last leads into user space for sure. */
static bool leads_to_user(const struct pt_packet *packet)
{
    const struct pt_packet_ip *ip = &packet->payload.ip;
    return (ip->ipc == pt_ipc_sext_48 && !(ip->ip >> 47 & 1)) || (ip->ipc == pt_ipc_full && !(ip->ip >> 63));
}

/* ---- blocks ---- */

static void use_bit(struct ptd_pace *pace, struct ptd_rows *rows, int64_t next)
{
    if (pace->bits) {
        pace->bits--;
        settle(pace, next);
        return;
    }
    if (take(pace, rows, PTD_NEXT_PGD, next)) { /* it led out of what is traced: there is no bit for that */
        go_on(pace, rows, next, 1);
        return;
    }
    if (!take(pace, rows, PTD_NEXT_TNT, next)) {
        pace->adrift = true;
        return;
    }
    uint8_t count = pace->timer.packet.payload.tnt.bit_size;
    pace->bits = count ? count - 1u : 0;
    go_on(pace, rows, next, 1);
}

static void use_tip(struct ptd_pace *pace, struct ptd_rows *rows, const struct ptd_pace_block *block)
{
    if (take(pace, rows, PTD_NEXT_TIP, block->next)) {
        if (block->ip >> 63 && leads_to_user(&pace->timer.packet))
            guess(pace, rows, block->next, 1);
        else
            go_on(pace, rows, block->next, 1);
    } else if (take(pace, rows, PTD_NEXT_PGD, block->next)) {
        go_on(pace, rows, block->next, 1);
    } else if (pace->timer.step != PTD_NEXT_OVF && pace->timer.step != PTD_NEXT_END) {
        pace->adrift = true;
    }
}

void ptd_pace_block(struct ptd_pace *pace, struct ptd_rows *rows, struct ptd_walker *walker,
                    const struct ptd_pace_block *block)
{
    pace->walker = walker;
    pace->walked += block->instructions;
    if (pace->behind_count == PTD_PACE_BLOCKS) /* the oldest is of no use any more */
        memmove(pace->behind, pace->behind + 1, --pace->behind_count * sizeof *pace->behind);
    pace->behind[pace->behind_count++] = *block;
    if (pace->adrift)
        return;
    switch (block->last) {
    case PTD_COND_JUMP:
        use_bit(pace, rows, block->next);
        break;
    case PTD_RETURN:
        if (pace->bits || peek(pace, rows) == PTD_NEXT_TNT)
            use_bit(pace, rows, block->next);
        else
            use_tip(pace, rows, block);
        break;
    case PTD_IND_JUMP:
    case PTD_IND_CALL:
    case PTD_SYSCALL:
    case PTD_FAR:
        use_tip(pace, rows, block);
        break;
    default:
        break;
    }
}

/* ---- events ---- */

/*
 * PTWRITE: libipt tells of it behind its instruction. With a FUP what comes before that instruction ran before the
 * packet; without one all that ran since the packet before ran after it.
 */
static void use_ptwrite(struct ptd_pace *pace, struct ptd_rows *rows, int64_t next)
{
    if (peek(pace, rows) != PTD_NEXT_PTW)
        return;
    if (!pace->timer.fup_wanted) {
        pace->held = false;
        go_on(pace, rows, pace->mark, pace->mark_before);
        return;
    }
    if (pace->walked)
        pace->walked--;
    use(pace, next);
    pace->walked = 1;
    set_mark(pace, next, 1);
    go_on(pace, rows, next, 1);
    while (!pace->held && pace->timer.fup_wanted)
        advance(pace, rows);
}

/* Whether an event is told where its packet is read, not at the FUP that others before it may wait for. */
static bool waits_for_no_fup(const struct pt_event *event)
{
    return event->type == ptev_pwre || event->type == ptev_pwrx || event->ip_suppressed;
}

/* Use the packets up to the FUP that the one used last waits for: their events come at the same place, or came before. */
static void use_up_to_fup(struct ptd_pace *pace, struct ptd_rows *rows, int64_t next)
{
    while (pace->timer.fup_wanted) {
        while (!pace->held && pace->timer.fup_wanted)
            advance(pace, rows);
        if (!pace->held || !take(pace, rows, PTD_NEXT_POWER, next))
            break;
        go_on(pace, rows, next, 0);
        pace->used_ahead++;
    }
    pace->timer.fup_wanted = false;
    pace->used_ahead -= pace->told_ahead < pace->used_ahead ? pace->told_ahead : pace->used_ahead;
    pace->told_ahead = 0;
}

/* EXSTOP, MWAIT, PWRE, PWRX. Those between an MWAIT and its FUP tell no time of their own. */
static void use_power(struct ptd_pace *pace, struct ptd_rows *rows, const struct pt_event *event, int64_t next)
{
    if (pace->used_ahead) {
        pace->used_ahead--;
        return;
    }
    if (peek(pace, rows) != PTD_NEXT_POWER)
        return;
    if (pace->timer.fup_wanted && waits_for_no_fup(event)) {
        pace->told_ahead++;
        return;
    }
    use(pace, next);
    go_on(pace, rows, next, 0);
    use_up_to_fup(pace, rows, next);
}

static void overflow(struct ptd_pace *pace, struct ptd_rows *rows, int64_t next)
{
    while (peek(pace, rows) != PTD_NEXT_OVF && pace->timer.step != PTD_NEXT_END)
        use(pace, next);
    use(pace, next);
    pace->bits = 0;
    pace->adrift = false;
    pace->since = 0;
    guess(pace, rows, next, 0);
    if (take(pace, rows, PTD_NEXT_FUP, next))
        guess(pace, rows, next, 0);
}

void ptd_pace_event(struct ptd_pace *pace, struct ptd_rows *rows, const struct pt_event *event, int64_t next)
{
    if (event->status_update)
        return;
    if (event->type == ptev_overflow) {
        overflow(pace, rows, next);
        return;
    }
    if (pace->adrift)
        return;
    switch (event->type) {
    case ptev_enabled:
        pace->adrift = !take(pace, rows, PTD_NEXT_PGE, next);
        if (pace->adrift)
            break;
        if (event->variant.enabled.ip >> 63)
            go_on(pace, rows, next, 0);
        else
            guess(pace, rows, next, 0);
        break;
    case ptev_disabled:
        if (take(pace, rows, PTD_NEXT_PGD, next)) /* unless a branch used it */
            go_on(pace, rows, next, 0);
        break;
    case ptev_async_disabled:
        pace->adrift = !take(pace, rows, PTD_NEXT_FUP, next) || !take(pace, rows, PTD_NEXT_PGD, next);
        if (!pace->adrift)
            go_on(pace, rows, next, 0);
        break;
    case ptev_async_branch:
        pace->adrift = !take(pace, rows, PTD_NEXT_FUP, next) || !take(pace, rows, PTD_NEXT_TIP, next);
        if (!pace->adrift)
            go_on(pace, rows, next, 0);
        break;
    case ptev_tsx:
        pace->adrift = !take(pace, rows, PTD_NEXT_TSX, next) ||
                       (!event->variant.tsx.aborted && !take(pace, rows, PTD_NEXT_FUP, next));
        if (!pace->adrift && !event->variant.tsx.aborted)
            go_on(pace, rows, next, 0);
        break;
    case ptev_ptwrite:
        use_ptwrite(pace, rows, next);
        break;
    case ptev_exstop:
    case ptev_mwait:
    case ptev_pwre:
    case ptev_pwrx:
        use_power(pace, rows, event, next);
        break;
    default:
        break;
    }
}

void ptd_pace_sync(struct ptd_pace *pace, struct ptd_rows *rows, uint64_t offset, int64_t next)
{
    pace->timer.stamped = false;
    ptd_timer_skip(&pace->timer, offset);
    ptd_timer_begin(&pace->timer);
    if (pace->timer.stamped)
        pace->since = 0;
    pace->held = pace->timer.step == PTD_NEXT_OVF;
    pace->adrift = false;
    pace->bits = pace->used_ahead = pace->told_ahead = 0;
    pace->walked = 0;
    set_mark(pace, next, 0);
    pace->behind_count = 0;
    go_on_by_psb(pace, rows, next, 0);
}

void ptd_pace_psb(struct ptd_pace *pace, struct ptd_rows *rows, uint64_t offset, int64_t next)
{
    while (!pace->adrift && !pace->held && pace->timer.offset <= offset)
        advance_to(pace, rows, next);
}

void ptd_pace_arrive(struct ptd_pace *pace, struct ptd_rows *rows, int64_t next, bool guess)
{
    if (guess && !pace->adrift)
        guess_after(pace, rows, next, 1, pace->since + pace->walked);
    if (pace->arrival < 0) /* code that runs in circles without a packet may come there again */
        pace->arrival = next;
    arrive_before(pace, pace->mark, pace->mark_before);
}

void ptd_pace_settle(struct ptd_pace *pace)
{
    arrive_before(pace, INT64_MAX, 0);
}

void ptd_pace_split(struct ptd_pace *pace, int64_t ordinal)
{
    pace->mark += pace->mark > ordinal;
    pace->arrival += pace->arrival > ordinal;
    for (uint32_t i = 0; i < pace->behind_count; i++)
        pace->behind[i].next += pace->behind[i].next > ordinal;
    for (uint32_t i = 0; i < pace->turn_count; i++)
        pace->turns[i].next += pace->turns[i].next > ordinal;
}

void ptd_pace_stop(struct ptd_pace *pace, struct ptd_rows *rows)
{
    if (!pace->adrift)
        (void)peek(pace, rows);
    ptd_pace_settle(pace);
}

void ptd_pace_end(struct ptd_pace *pace, struct ptd_timing *ret)
{
    struct ptd_timer *timer = &pace->timer;
    timer->stamped = false;
    ptd_timer_skip(timer, timer->size);
    *ret = timer->at;
    ret->now = pace->now;
    ret->latest = pace->latest;
    ret->since = timer->stamped ? 0 : pace->since + pace->walked;
}
