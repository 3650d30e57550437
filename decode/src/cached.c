/* SPDX-License-Identifier: MIT */
/*
 * The path decoder: PSB segments with the cache of steps where that can be, with libipt (flow.c) where not.
 *
 * A segment is good when it was decoded up to where the next PSB says that execution stood; its rows go out then.
 * When it is not, whatever came of it is taken back (rows, paths, blocks) and libipt decodes from its PSB on to the end
 * of the slice. Which of the two decodes a segment depends on the slice's packets and code alone.
 *
 * A decoder borrows the packets, the space and the tables. What it remembers of the code lives with the images and
 * serves one decoder after the other. Memory: what cached_steps.c and cached_buffer.h keep. Not thread-safe.
 */
#include "cached_segment.h"
#include "images.h"
#include "psb.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Addresses of the nodes a place knows: nodes may be dropped and numbered anew. */
struct addresses {
    uint64_t node;
    uint64_t returns[PTD_RETURNS];
};

/* What is put back when a segment was not good. */
struct checkpoint {
    struct ptd_place place;
    struct addresses addresses;
    struct ptd_run run;
    struct ptd_mark marks[PTD_MARKS];
    unsigned mark_count;
    struct ptd_filled filled;
    size_t blocks, paths;
    uint64_t offset; /* of the PSB */
};

enum state { DECODING, HANDED_OVER, DONE };

struct ptd_cached {
    struct ptd_segment segment;
    struct ptd_cpu cpu;
    enum state state;
    uint64_t at; /* offset of the PSB decoding goes on at */
    struct checkpoint *before; /* the last PSB that was arrived at */
    struct checkpoint *next;   /* the one that is being arrived at */
    struct checkpoint checkpoints[2];
    struct ptd_decoder *libipt; /* of the rest of the slice, when it was handed over */
    uint64_t handed; /* bytes, in all */
    int32_t first_block;
};

/* ---- going back ---- */

static void note_addresses(const struct ptd_segment *segment, struct addresses *ret)
{
    const struct ptd_node *nodes = segment->steps->code.nodes;
    const struct ptd_returns *returns = &segment->place.returns;
    if (segment->place.standing == PTD_STANDING_OFF)
        return;
    ret->node = nodes[segment->place.node].ip;
    for (uint32_t i = 0; i < returns->depth; i++)
        ret->returns[i] = nodes[returns->nodes[(returns->top - returns->depth + i) % PTD_RETURNS]].ip;
}

/* The nodes of the addresses, as they are numbered now. Returns 0 or -ENOMEM. */
static int look_up_addresses(struct ptd_segment *segment, const struct addresses *addresses)
{
    struct ptd_code *code = &segment->steps->code;
    struct ptd_place *place = &segment->place;
    uint32_t depth = place->returns.depth;
    if (place->standing == PTD_STANDING_OFF)
        return 0;
    place->node = ptd_code_at(code, addresses->node);
    place->returns.depth = 0;
    for (uint32_t i = 0; place->node >= 0 && i < depth; i++) {
        int32_t node = ptd_code_at(code, addresses->returns[i]);
        if (node < 0)
            return node;
        ptd_returns_push(&place->returns, node);
    }
    return place->node < 0 ? -ENOMEM : 0;
}

static void remember(const struct ptd_cached *cached, struct checkpoint *ret)
{
    const struct ptd_segment *segment = &cached->segment;
    ret->place = segment->place;
    note_addresses(segment, &ret->addresses);
    ret->run.length = segment->run.length;
    ret->run.decisions = segment->run.decisions;
    ret->run.hash = segment->run.hash;
    memcpy(ret->run.blocks, segment->run.blocks, segment->run.length * sizeof *segment->run.blocks);
    memcpy(ret->marks, segment->marks, segment->mark_count * sizeof *segment->marks);
    ret->mark_count = segment->mark_count;
    ret->filled = segment->buffer.filled;
    ret->blocks = segment->tables->blocks.count;
    ret->paths = segment->tables->paths.count;
    ret->offset = cached->at;
}

/* Numbers the steps know are void, or were never these tables'. Returns 0 or -ENOMEM. */
static int restamp(struct ptd_segment *segment)
{
    segment->stamp = ptd_steps_stamp(segment->steps);
    segment->tables->stamp = segment->stamp;
    segment->tables->generation = segment->steps->generation;
    return segment->stamp ? 0 : -ENOMEM;
}

static int go_back(struct ptd_cached *cached, const struct checkpoint *to)
{
    struct ptd_segment *segment = &cached->segment;
    segment->place = to->place;
    segment->run.length = to->run.length;
    segment->run.decisions = to->run.decisions;
    segment->run.hash = to->run.hash;
    memcpy(segment->run.blocks, to->run.blocks, to->run.length * sizeof *to->run.blocks);
    memcpy(segment->marks, to->marks, to->mark_count * sizeof *to->marks);
    segment->mark_count = to->mark_count;
    segment->buffer.filled = to->filled;
    ptd_paths_truncate(&segment->tables->paths, to->paths);
    ptd_blocks_truncate(&segment->tables->blocks, to->blocks);
    cached->at = to->offset;
    int error = restamp(segment);
    return error < 0 ? error : look_up_addresses(segment, &to->addresses);
}

/* ---- rows that are good ---- */

static void first_of(struct ptd_cached *cached)
{
    const struct ptd_segment *segment = &cached->segment;
    const struct ptd_paths *paths = &segment->tables->paths;
    if (cached->first_block < 0 && segment->buffer.good.flow)
        cached->first_block = paths->blocks[paths->starts[segment->buffer.flow_path[0]]];
}

/* Rows up to `filled` are good; rows of events without an offset wait for it. */
static void approve(struct ptd_cached *cached, struct ptd_filled filled, const struct ptd_place *place)
{
    struct ptd_buffer *buffer = &cached->segment.buffer;
    buffer->good = filled;
    if (place->event_last != PTD_NO_ROW && (size_t)place->event_last < buffer->good.events)
        buffer->good.events = (size_t)place->event_last;
    if (place->event_before != PTD_NO_ROW && (size_t)place->event_before < buffer->good.events)
        buffer->good.events = (size_t)place->event_before;
    first_of(cached);
}

static bool all_out(const struct ptd_buffer *buffer)
{
    return buffer->taken.flow == buffer->good.flow && buffer->taken.clock == buffer->good.clock &&
           buffer->taken.events == buffer->good.events;
}

static void shift_place(struct ptd_place *place, size_t events)
{
    if (place->event_last != PTD_NO_ROW)
        place->event_last -= (int64_t)events;
    if (place->event_before != PTD_NO_ROW)
        place->event_before -= (int64_t)events;
}

/* Copy good rows out. False: there is no room for all of them. */
static bool hand_out(struct ptd_cached *cached, struct ptd_rows *rows)
{
    struct ptd_buffer *buffer = &cached->segment.buffer;
    if (!ptd_buffer_take(buffer, rows))
        return false;
    struct ptd_filled out = buffer->taken, *filled = &cached->before->filled;
    ptd_buffer_compact(buffer);
    shift_place(&cached->segment.place, out.events);
    shift_place(&cached->before->place, out.events);
    *filled = (struct ptd_filled){filled->flow - out.flow, filled->clock - out.clock, filled->events - out.events};
    return true;
}

/* ---- libipt's segments ---- */

/*
 * Leave the rest of the slice to libipt. To the end, and not to the next PSB only: libipt reads ahead, so what it makes
 * of a segment's last packets depends on those behind the PSB.
 */
static int hand_over(struct ptd_cached *cached)
{
    struct ptd_segment *segment = &cached->segment;
    const struct ptd_slice *slice = &segment->slice;
    struct ptd_slice part = {
        .packets = slice->packets + cached->at,
        .size = slice->size - cached->at,
        .offset = slice->offset + cached->at,
        .seq = segment->place.progress.seq,
        .tsc = segment->place.progress.tsc,
        .has_stop = slice->has_stop,
        .stop_ip = slice->stop_ip,
        .switches = slice->switches,
        .switch_count = slice->switch_count,
    };
    if (segment->place.standing != PTD_STANDING_OFF)
        segment->place.resume_ip = 0;
    cached->handed += part.size;
    cached->state = HANDED_OVER;
    return ptd_decoder_create(segment->tables, segment->space, &cached->cpu, &part, &cached->libipt);
}

/* Execution stands nowhere yet: only what rows have told so far stays, and where tracing was turned off. */
static void begin(struct ptd_segment *segment, uint64_t resume_ip)
{
    struct ptd_progress progress = segment->place.progress;
    segment->place = (struct ptd_place){.fresh = true, .resume_ip = resume_ip, .event_before = PTD_NO_ROW,
                                        .event_last = PTD_NO_ROW, .progress = progress};
    segment->mark_count = 0;
    ptd_run_reset(&segment->run);
}

/* Where tracing was turned off before libipt's segment began it cannot know: its first event may resume there. */
static void mark_resumed(struct ptd_cached *cached, struct ptd_rows *rows, size_t first)
{
    uint64_t *ip = &cached->segment.place.resume_ip;
    for (size_t i = first; i < rows->event_count && *ip; i++) {
        if (rows->event_kind[i] == PTD_EV_ENABLED && rows->event_ip[i] == *ip) {
            rows->event_detail[i] = 1;
            ptd_set_valid(rows->valid_event_detail, i);
        }
        if (rows->event_kind[i] <= PTD_EV_ASYNC_BRANCH || rows->event_kind[i] == PTD_EV_OVERFLOW)
            *ip = 0;
    }
}

/* Go on with libipt until the slice is over. Returns 1 when the rows are full, 0, or negative errno. */
static int step_libipt(struct ptd_cached *cached, struct ptd_rows *rows)
{
    struct ptd_progress *progress = &cached->segment.place.progress, part;
    size_t first = rows->event_count;
    int more = ptd_decoder_step(cached->libipt, rows);
    mark_resumed(cached, rows, first);
    if (more != 0)
        return more;
    ptd_decoder_progress(cached->libipt, &part);
    ptd_decoder_destroy(cached->libipt);
    cached->libipt = NULL;
    progress->seq = part.seq;
    progress->tsc = part.tsc;
    progress->instructions += part.instructions;
    progress->branches += part.branches;
    progress->lost += part.lost;
    if (cached->first_block < 0)
        cached->first_block = part.first_block;
    cached->at = cached->segment.slice.size;
    cached->state = DONE;
    progress->off_ip = part.off ? part.off_ip : cached->segment.place.resume_ip;
    progress->off = part.off || progress->off_ip;
    return 0;
}

/* ---- our segments ---- */

/* A time that no packet was used after would be lost with the place. */
static int tell_time(struct ptd_segment *segment)
{
    struct ptd_place *place = &segment->place;
    if (!place->timed || place->time <= place->progress.tsc)
        return 0;
    place->progress.tsc = place->time;
    return ptd_buffer_clock(&segment->buffer, place->progress.seq, place->time);
}

/* The segment that began at a PSB is bad: take it back and give it, and what follows it, to libipt. */
static int reject(struct ptd_cached *cached, const struct checkpoint *psb)
{
    struct ptd_segment *segment = &cached->segment;
    struct ptd_psb_plus plus;
    int error = go_back(cached, psb);
    uint64_t ahead = cached->at; /* of what libipt would be about to read */
    if (error == 0 && !segment->place.fresh) {
        /* what led there is good, and is told without the PSB's events: libipt finds those */
        if (ptd_psb_plus_read(segment->slice.packets, segment->slice.size, cached->at, segment->timing, &plus))
            ahead = plus.has_ip && plus.count ? plus.psbend : plus.end;
        error = ptd_segment_stop(segment, plus.has_ip, plus.ip);
        if (error == 0)
            error = tell_time(segment);
    }
    if (error < 0)
        return error;
    ptd_segment_no_more(segment, ahead);
    approve(cached, segment->buffer.filled, &segment->place);
    return hand_over(cached);
}

static bool is_odd(int status)
{
    return status == -EILSEQ || status == -ETIME;
}

/* Keep what is remembered of the code bounded. Returns 0 or -ENOMEM. */
static int bound(struct ptd_segment *segment)
{
    struct addresses addresses;
    uint32_t generation = segment->steps->generation;
    note_addresses(segment, &addresses);
    int error = ptd_steps_bound(segment->steps);
    if (error == 0 && segment->steps->generation != generation) {
        error = restamp(segment);
        if (error == 0)
            error = look_up_addresses(segment, &addresses);
    }
    return error;
}

/* The slice is over. */
static int finish(struct ptd_cached *cached)
{
    struct ptd_segment *segment = &cached->segment;
    int error = ptd_segment_stop(segment, segment->slice.has_stop, segment->slice.stop_ip);
    if (error < 0)
        return error;
    ptd_segment_no_more(segment, segment->slice.size);
    approve(cached, segment->buffer.filled, &segment->place);
    segment->place.progress.off = segment->place.standing == PTD_STANDING_OFF && segment->place.resume_ip;
    segment->place.progress.off_ip = segment->place.progress.off ? segment->place.resume_ip : 0;
    cached->state = DONE;
    return 0;
}

/* Arrive at the PSB at `at`: then the segment before it is good. Decode up to the next. Returns 0 or an error. */
static int decode_segment(struct ptd_cached *cached)
{
    struct ptd_segment *segment = &cached->segment;
    uint64_t offset = cached->at;
    int status = bound(segment);
    if (status < 0)
        return status;
    remember(cached, cached->next);
    status = ptd_segment_arrive(segment, &offset);
    if (is_odd(status))
        return reject(cached, cached->next->place.fresh ? cached->next : cached->before);
    if (status < 0)
        return status;
    struct checkpoint *arrived = cached->next;
    cached->next = cached->before;
    cached->before = arrived;
    approve(cached, arrived->filled, &segment->place);
    status = ptd_segment_decode(segment, &offset);
    if (status == 1)
        cached->at = offset;
    else if (status == 0)
        status = finish(cached);
    return is_odd(status) ? reject(cached, arrived) : status < 0 ? status : 0;
}

int ptd_cached_step(struct ptd_cached *cached, struct ptd_rows *rows)
{
    int status = 0;
    if (cached->segment.steps->user != cached)
        return -EBUSY;
    while (status == 0 && hand_out(cached, rows) && cached->state != DONE)
        status = cached->state == HANDED_OVER ? step_libipt(cached, rows) : decode_segment(cached);
    if (status < 0)
        return status;
    return status > 0 || cached->state != DONE || !all_out(&cached->segment.buffer);
}

void ptd_cached_progress(const struct ptd_cached *cached, struct ptd_progress *ret)
{
    *ret = cached->segment.place.progress;
    ret->first_block = cached->first_block;
    ret->offset = cached->state == DONE ? cached->segment.slice.size : cached->at;
}

uint64_t ptd_cached_handed(const struct ptd_cached *cached)
{
    return cached->handed;
}

/* ---- life ---- */

static bool has_skd022(const struct ptd_cpu *cpu)
{
    struct pt_cpu named = {.vendor = pcv_intel, .family = cpu->family, .model = cpu->model, .stepping = cpu->stepping};
    struct pt_errata errata;
    memset(&errata, 0, sizeof errata);
    return pt_cpu_errata(&errata, &named) >= 0 && errata.skd022;
}

static int cached_init(struct ptd_cached *cached, struct ptd_tables *tables, struct ptd_space *space,
                       const struct ptd_slice *slice)
{
    struct ptd_segment *segment = &cached->segment;
    const struct ptd_cpu *cpu = &cached->cpu;
    segment->tables = tables;
    segment->space = space;
    segment->images = ptd_space_images(space);
    segment->slice = *slice;
    segment->timing = cpu->mtc_freq || cpu->nom_freq || cpu->cpuid_0x15_eax || cpu->cpuid_0x15_ebx;
    segment->skd022 = cpu->intel && has_skd022(cpu);
    segment->place.progress = (struct ptd_progress){.seq = slice->seq, .tsc = slice->tsc, .first_block = -1};
    begin(segment, 0);
    segment->steps = ptd_images_steps(segment->images);
    if (!segment->steps || ptd_buffer_init(&segment->buffer) < 0 || ptd_steps_enter(segment->steps, space) < 0)
        return -ENOMEM;
    segment->steps->user = cached;
    segment->stamp = tables->stamp;
    if (!tables->stamp || tables->generation != segment->steps->generation)
        return restamp(segment);
    return 0;
}

/* What only libipt's decoder can do in the whole slice: times by branch, switches by time, ticks, address filters. */
static bool is_libipts(const struct ptd_cpu *cpu, const struct ptd_slice *slice)
{
    uint8_t filters = cpu->filter_kind[0] | cpu->filter_kind[1] | cpu->filter_kind[2] | cpu->filter_kind[3];
    return cpu->exact_time || cpu->ticks || filters || slice->switch_count;
}

int ptd_cached_create(struct ptd_tables *tables, struct ptd_space *space, const struct ptd_cpu *cpu,
                      const struct ptd_slice *slice, struct ptd_cached **ret)
{
    struct ptd_cached *cached = calloc(1, sizeof *cached);
    if (!cached)
        return -ENOMEM;
    cached->cpu = *cpu;
    cached->first_block = -1;
    cached->before = &cached->checkpoints[0];
    cached->next = &cached->checkpoints[1];
    int error = slice->size ? cached_init(cached, tables, space, slice) : -EINVAL;
    if (error == 0 && (is_libipts(cpu, slice) || ptd_psb_after(slice->packets, slice->size, 0) != 0))
        error = hand_over(cached);
    if (error < 0) {
        ptd_cached_destroy(cached);
        return error;
    }
    *ret = cached;
    return 0;
}

void ptd_cached_destroy(struct ptd_cached *cached)
{
    if (!cached)
        return;
    if (cached->segment.steps && cached->segment.steps->user == cached)
        cached->segment.steps->user = NULL;
    ptd_decoder_destroy(cached->libipt);
    ptd_buffer_deinit(&cached->segment.buffer);
    free(cached);
}
