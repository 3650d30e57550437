/* SPDX-License-Identifier: MIT */
/*
 * Switches by time begin pieces of other threads. As perf has it, an instruction is of the thread whose turn it is when
 * it runs: one that has the time of a switch, or a later one, is the new thread's. So a block may be of two threads; it
 * becomes two blocks then. Only where nobody is to run who has a trace (the idle task, without the kernel) an estimate
 * of the time went too far: up to the end of the block it is still the old thread's. Where the kernel was traced and its
 * symbols are known, a switch is made where the kernel makes it, see handover.c. Works on the decoder it is handed.
 */
#include "flow.h"
#include "images.h"
#include "walker.h"

#include <errno.h>
#include <string.h>

/* A place in the run: `blocks` of its blocks, and `instructions` of the one after them, are before it. */
struct place {
    uint32_t blocks;
    uint32_t instructions;
};

static struct place place_of(const struct ptd_decoder *decoder, const struct ptd_turn *turn)
{
    const struct ptd_run *run = &decoder->run;
    int64_t behind = turn->next - decoder->progress.seq;
    struct place place = {.blocks = behind < 0 ? 0 : behind < run->length ? (uint32_t)behind : run->length};
    uint32_t before = (uint32_t)turn->before;
    while (before && place.blocks) {
        uint32_t count = (uint32_t)decoder->tables->blocks.instructions[run->blocks[--place.blocks]];
        place.instructions = count > before ? count - before : 0;
        before -= count > before ? before : count;
    }
    return place;
}

static struct ptd_block_row row_of(const struct ptd_blocks *blocks, int32_t block)
{
    return (struct ptd_block_row){
        .image = blocks->image[block],
        .offset = blocks->offset[block],
        .ip = blocks->ip[block],
        .last_ip = blocks->last_ip[block],
        .size = blocks->size[block],
        .instructions = blocks->instructions[block],
        .last = blocks->last[block],
        .mode = blocks->mode[block],
    };
}

/* Number a block's first `count` instructions, and the rest of it. Returns 0 or negative errno. */
static int split_block(struct ptd_decoder *decoder, int32_t block, uint32_t count, int32_t *ret_head, int32_t *ret_tail)
{
    struct ptd_blocks *blocks = &decoder->tables->blocks;
    struct ptd_block_row head = row_of(blocks, block), tail = head;
    struct ptd_walk walk;
    if (ptd_walker_walk(ptd_space_walker(decoder->timed), head.ip, (enum pt_exec_mode)head.mode, count, NULL, &walk) < 0 ||
        walk.instructions != count)
        return -EILSEQ; /* it was decoded before */
    head.last_ip = walk.last_ip;
    head.size = (int32_t)(walk.end - head.ip);
    head.instructions = (int32_t)count;
    head.last = PTD_OTHER;
    tail.ip = walk.end;
    if (tail.image >= 0)
        tail.offset += head.size;
    tail.size -= head.size;
    tail.instructions -= head.instructions;
    int error = ptd_blocks_intern_row(blocks, &head, ret_head);
    return error < 0 ? error : ptd_blocks_intern_row(blocks, &tail, ret_tail);
}

/* What is behind a place in the run, as a run of its own; the run itself ends there. Returns 0 or negative errno. */
static int take_rest(struct ptd_decoder *decoder, struct place place, struct ptd_run *ret)
{
    const int8_t *last = decoder->tables->blocks.last;
    struct ptd_run *run = &decoder->run;
    ptd_run_reset(ret);
    ret->length = run->length - place.blocks;
    memcpy(ret->blocks, run->blocks + place.blocks, ret->length * sizeof *ret->blocks);
    run->length = place.blocks;
    if (place.instructions) {
        int64_t ordinal = decoder->progress.seq + place.blocks;
        int error = split_block(decoder, ret->blocks[0], place.instructions, &run->blocks[run->length], &ret->blocks[0]);
        if (error < 0)
            return error;
        run->length++;
        ptd_pace_split(&decoder->pace, ordinal);
        last = decoder->tables->blocks.last;
    }
    for (uint32_t i = 0; i < ret->length; i++)
        ret->decisions += last[ret->blocks[i]] == PTD_COND_JUMP || last[ret->blocks[i]] == PTD_RETURN;
    return 0;
}

/* End the path at a place in the run; what is behind it is the run then. Returns 0 or negative errno. */
static int close_at(struct ptd_decoder *decoder, struct ptd_rows *rows, struct place place)
{
    struct ptd_run rest;
    if (place.blocks == decoder->run.length)
        return ptd_flow_close_run(decoder, rows);
    uint32_t sure = decoder->sure > place.blocks ? decoder->sure - place.blocks : 0;
    decoder->trail.length = PTD_TRAIL_LOST;
    int error = take_rest(decoder, place, &rest);
    if (error == 0)
        error = ptd_flow_close_run(decoder, rows);
    if (error < 0)
        return error;
    decoder->run.decisions = rest.decisions;
    decoder->run.length = rest.length;
    memcpy(decoder->run.blocks, rest.blocks, rest.length * sizeof *rest.blocks);
    decoder->sure = sure;
    decoder->last = rest.blocks[rest.length - 1];
    decoder->trail.length = PTD_TRAIL_LOST;
    return 0;
}

/* Whether one thread runs in one space from switch `begin` to switch `end`: it was not away in between, and elsewhere. */
static bool is_one(const struct ptd_switch *begin, const struct ptd_switch *end)
{
    const struct ptd_switch *at = begin;
    while (at < end && at[1].thread == begin->thread && at[1].space == begin->space)
        at++;
    return at == end;
}

/* The switch in force, if another one was entered than that. */
static const struct ptd_switch *to_enter(const struct ptd_decoder *decoder)
{
    uint64_t running = decoder->handover.running, entered = decoder->entered;
    if (!running || running == entered)
        return NULL;
    const struct ptd_switch *to = &decoder->slice.switches[running - 1];
    const struct ptd_switch *from = entered ? &decoder->slice.switches[entered - 1] : NULL;
    return from && is_one(from < to ? from : to, from < to ? to : from) ? NULL : to;
}

/* What runs from a turn on is perhaps another thread's; `told`: so is its time. Returns 0 or negative errno. */
static int take_turn(struct ptd_decoder *decoder, struct ptd_rows *rows, const struct ptd_turn *turn, bool told)
{
    const struct ptd_switch *to = to_enter(decoder);
    decoder->entered = decoder->handover.running;
    if (!to) {
        if (!told)
            ptd_rows_moment(rows, turn->next, turn->time, turn->before);
        return 0;
    }
    struct place place = place_of(decoder, turn);
    if (to->thread < 0 && !turn->arrival && place.blocks < decoder->run.length) { /* what ran cannot be nobody's */
        ptd_rows_moment(rows, turn->next, turn->time, turn->before);
        place = (struct place){.blocks = decoder->run.length};
    }
    int error = close_at(decoder, rows, place);
    if (error == 0)
        error = ptd_flow_enter(decoder, to->space);
    if (error < 0)
        return error;
    (void)ptd_rows_unsay(rows, decoder->progress.seq);
    ptd_rows_piece(rows, to->thread, turn->time, &decoder->progress);
    if (turn->time)
        ptd_rows_moment(rows, decoder->progress.seq, turn->time, 0);
    return 0;
}

/* A moment. Returns 0 or negative errno. */
static int take_moment(struct ptd_decoder *decoder, struct ptd_rows *rows, const struct ptd_turn *turn)
{
    ptd_handover_pass(&decoder->handover, &decoder->slice, decoder->entered ? turn->time : decoder->pace.latest);
    return take_turn(decoder, rows, turn, false);
}

/*
 * An arrival. When the kernel wrote of it later than that by the trace's estimate, it is as late as that: `waited`.
 * Returns 0 or negative errno.
 */
static int take_arrival(struct ptd_decoder *decoder, struct ptd_rows *rows, const struct ptd_turn *turn, uint64_t *waited)
{
    struct ptd_turn at = *turn;
    uint64_t time = ptd_handover_arrive(&decoder->handover, &decoder->slice, turn->time);
    if (time > at.time)
        *waited = at.time = time;
    return take_turn(decoder, rows, &at, !*waited);
}

int ptd_flow_follow(struct ptd_decoder *decoder, struct ptd_rows *rows)
{
    const struct ptd_slice *slice = &decoder->slice;
    struct ptd_pace *pace = &decoder->pace;
    uint64_t waited = 0;
    int error = 0;
    decoder->progress.tsc = pace->now;
    if (!decoder->entered && slice->switch_count && !pace->turn_count) {
        const struct ptd_turn first = {.next = decoder->progress.seq, .time = pace->now};
        error = take_moment(decoder, rows, &first);
    }
    for (uint32_t i = 0; error == 0 && i < pace->turn_count; i++) {
        const struct ptd_turn *turn = &pace->turns[i];
        if (turn->arrival) {
            error = take_arrival(decoder, rows, turn, &waited);
        } else if (turn->back || turn->time > waited) {
            waited = 0;
            error = take_moment(decoder, rows, turn);
        }
    }
    if (waited)
        pace->now = waited;
    if (waited > pace->latest)
        pace->latest = waited;
    pace->turn_count = 0;
    pace->due = ptd_handover_due(&decoder->handover, slice);
    decoder->progress.tsc = pace->now;
    return error;
}

/* ---- what leads to a place ---- */

static bool is_call(const struct ptd_decoder *decoder)
{
    enum ptd_class last = (enum ptd_class)decoder->tables->blocks.last[decoder->last];
    return last == PTD_CALL || last == PTD_IND_CALL;
}

void ptd_flow_come_to(struct ptd_decoder *decoder, uint64_t ip)
{
    struct ptd_handover *handover = &decoder->handover;
    if (!ptd_flow_by_place(decoder))
        return;
    if (decoder->led && ip == decoder->slice.switch_ip)
        ptd_pace_arrive(&decoder->pace, decoder->rows, decoder->progress.seq + decoder->run.length,
                        handover->state == PTD_TRACING_UNKNOWN && !handover->pending);
    else if (handover->state <= PTD_TRACING_LOST && decoder->last >= 0 && ip != ptd_flow_end_of(decoder, decoder->last))
        ptd_handover_go_on(handover);
    else if (decoder->led && ip == decoder->slice.tell_ip && decoder->last >= 0 && is_call(decoder))
        ptd_handover_tell(handover);
}

void ptd_flow_leave(struct ptd_decoder *decoder, enum ptd_class last)
{
    decoder->led = last == PTD_JUMP || last == PTD_IND_JUMP || last == PTD_CALL || last == PTD_IND_CALL ||
                   last == PTD_RETURN;
}

int ptd_flow_handover_event(struct ptd_decoder *decoder, struct ptd_rows *rows, const struct pt_event *event)
{
    if (!ptd_flow_by_place(decoder) || event->status_update)
        return 0;
    switch (event->type) {
    case ptev_enabled:
        decoder->led = true;
        ptd_handover_go_on(&decoder->handover);
        return 0;
    case ptev_disabled:
    case ptev_async_disabled:
        decoder->led = false;
        ptd_handover_turn_off(&decoder->handover);
        return 0;
    case ptev_async_branch:
        decoder->led = false;
        ptd_handover_go_on(&decoder->handover);
        return 0;
    case ptev_overflow:
        decoder->led = false;
        return decoder->last < 0 ? 0 : ptd_flow_lose_turns(decoder, rows, decoder->tables->blocks.ip[decoder->last]);
    default:
        return 0;
    }
}

int ptd_flow_settle_turns(struct ptd_decoder *decoder, struct ptd_rows *rows)
{
    if (!ptd_flow_by_place(decoder))
        return 0;
    ptd_pace_settle(&decoder->pace);
    return ptd_flow_follow(decoder, rows);
}

int ptd_flow_lose_turns(struct ptd_decoder *decoder, struct ptd_rows *rows, uint64_t ip)
{
    const struct ptd_turn here = {
        .next = decoder->progress.seq, .arrival = true, .time = decoder->pace.now};
    if (!ptd_flow_by_place(decoder) || !(ip >> 63))
        return 0;
    ptd_handover_lose(&decoder->handover);
    return take_turn(decoder, rows, &here, true);
}
