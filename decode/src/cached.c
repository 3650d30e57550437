/* SPDX-License-Identifier: MIT */
/*
 * The path decoder: PSB segments with the cache of steps, and with libipt (flow.c) where that cannot be.
 *
 * A segment is good when it was decoded up to where the next PSB says that execution stood, and so was the one behind
 * it: libipt reads ahead, so what it makes of a segment's last packets depends on those behind the PSB. Rows of good
 * segments go out. When a segment is not good, libipt decodes the whole slice, from its beginning; the rows that are out
 * already are the same and are left out of its own. So the tables are libipt's, whatever is in the packets; which of the
 * two decodes a slice depends on its packets and code alone.
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

/* How far rows, blocks and paths were when a PSB was arrived at. */
struct checkpoint {
    struct ptd_filled filled;
    size_t blocks, paths;
};

enum state { DECODING, HANDED_OVER, DONE };

/* Rows that are out. */
struct given {
    int64_t seq; /* flow before it */
    struct ptd_moment moment; /* the last; tsc 0: none */
    size_t events;
};

struct ptd_cached {
    struct ptd_segment segment;
    struct ptd_cpu cpu;
    enum state state;
    uint64_t at; /* offset of the PSB decoding goes on at */
    struct checkpoint before, last; /* at the last two PSBs that were arrived at */
    struct given given;
    struct ptd_decoder *libipt; /* of the whole slice, when it was handed over */
    bool behind;                /* some of its rows may be out already */
    struct ptd_rows *known;     /* its rows while that is so */
    bool waiting;               /* they wait for room */
    int more;                   /* what its last step returned then */
    uint64_t handed;            /* bytes */
    int32_t first_block;
};

/* ---- numbers that change ---- */

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

static struct checkpoint checkpoint_of(const struct ptd_segment *segment)
{
    return (struct checkpoint){.filled = segment->buffer.filled,
                               .blocks = segment->tables->blocks.count,
                               .paths = segment->tables->paths.count};
}

/* Numbers the steps know are void, or were never these tables'. Returns 0 or -ENOMEM. */
static int restamp(struct ptd_segment *segment)
{
    segment->stamp = ptd_steps_stamp(segment->steps);
    segment->tables->stamp = segment->stamp;
    segment->tables->generation = segment->steps->generation;
    return segment->stamp ? 0 : -ENOMEM;
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

static void shift_filled(struct ptd_filled *filled, const struct ptd_filled *out)
{
    filled->flow -= out->flow;
    filled->clock -= out->clock;
    filled->events -= out->events;
}

static void note_given(struct ptd_cached *cached)
{
    const struct ptd_buffer *buffer = &cached->segment.buffer;
    const struct ptd_filled *out = &buffer->taken;
    struct given *given = &cached->given;
    if (out->flow) {
        size_t last = out->flow - 1;
        given->seq = buffer->flow_seq[last] + cached->segment.tables->paths.length[buffer->flow_path[last]];
    }
    if (out->clock)
        given->moment = buffer->clock[out->clock - 1];
    given->events += out->events;
}

/* Copy good rows out. False: there is no room for all of them. */
static bool hand_out(struct ptd_cached *cached, struct ptd_rows *rows)
{
    struct ptd_buffer *buffer = &cached->segment.buffer;
    if (!ptd_buffer_take(buffer, rows))
        return false;
    struct ptd_filled out = buffer->taken;
    note_given(cached);
    ptd_buffer_compact(buffer);
    shift_place(&cached->segment.place, out.events);
    shift_filled(&cached->before.filled, &out);
    shift_filled(&cached->last.filled, &out);
    return true;
}

/* ---- libipt's slices ---- */

/* A segment is not good: libipt decodes the slice. Returns 0 or an error. */
static int hand_over(struct ptd_cached *cached)
{
    struct ptd_segment *segment = &cached->segment;
    struct ptd_buffer *buffer = &segment->buffer;
    buffer->filled = buffer->good = buffer->taken = (struct ptd_filled){0};
    ptd_paths_truncate(&segment->tables->paths, cached->before.paths);
    ptd_blocks_truncate(&segment->tables->blocks, cached->before.blocks);
    cached->behind = cached->given.seq > segment->slice.seq || cached->given.moment.tsc || cached->given.events;
    cached->handed = segment->slice.size;
    cached->state = HANDED_OVER;
    int error = restamp(segment);
    return error < 0 ? error : ptd_decoder_create(segment->tables, segment->space, &cached->cpu, &segment->slice,
                                                  &cached->libipt);
}

static bool is_given(const struct given *given, int64_t seq, uint64_t tsc)
{
    const struct ptd_moment *last = &given->moment;
    return last->tsc && (seq < last->seq || (seq == last->seq && tsc <= last->tsc));
}

/* Copy rows that are not out yet. */
static void copy_new(struct ptd_cached *cached, struct ptd_rows *rows)
{
    const struct ptd_rows *known = cached->known;
    struct given *given = &cached->given;
    for (size_t i = 0; i < known->flow_count; i++)
        if (known->flow_seq[i] >= given->seq)
            ptd_rows_flow(rows, known->flow_seq[i], known->flow_path[i]);
    for (size_t i = 0; i < known->clock_count; i++)
        if (!is_given(given, known->clock_seq[i], known->clock_tsc[i]))
            ptd_rows_clock(rows, known->clock_seq[i], known->clock_tsc[i]);
    size_t out = given->events < known->event_count ? given->events : known->event_count;
    given->events -= out;
    for (size_t i = out; i < known->event_count; i++) {
        struct ptd_event_row row = ptd_rows_event_at(known, i);
        ptd_rows_event(rows, &row);
    }
    for (size_t i = 0; i < known->gap_count; i++) {
        struct ptd_gap_row row = ptd_rows_gap_at(known, i);
        ptd_rows_gap(rows, &row);
    }
}

static bool has_room_for(const struct ptd_rows *rows, const struct ptd_rows *more)
{
    return more->flow_count <= rows->flow_capacity - rows->flow_count &&
           more->clock_count <= rows->clock_capacity - rows->clock_count &&
           more->event_count <= rows->event_capacity - rows->event_count &&
           more->gap_count <= rows->gap_capacity - rows->gap_count;
}

/* libipt's decoder is through with the slice. */
static void conclude(struct ptd_cached *cached)
{
    ptd_decoder_progress(cached->libipt, &cached->segment.place.progress);
    cached->first_block = cached->segment.place.progress.first_block;
    cached->at = cached->segment.slice.size;
    cached->state = DONE;
}

/* Decode what is out already, and a little more. Returns 1 when the rows are full, 0 to go on, or negative errno. */
static int catch_up(struct ptd_cached *cached, struct ptd_rows *rows)
{
    if (!cached->known) {
        cached->known = ptd_rows_create(rows->flow_capacity);
        if (!cached->known)
            return -ENOMEM;
    }
    if (!cached->waiting) {
        cached->more = ptd_decoder_step(cached->libipt, cached->known);
        if (cached->more < 0)
            return cached->more;
    }
    cached->waiting = !has_room_for(rows, cached->known);
    if (cached->waiting)
        return 1;
    copy_new(cached, rows);
    ptd_rows_clear(cached->known);
    struct ptd_progress progress;
    ptd_decoder_progress(cached->libipt, &progress);
    cached->behind = progress.seq <= cached->given.seq || progress.seq <= cached->given.moment.seq ||
                     cached->given.events;
    if (!cached->more)
        conclude(cached);
    return 0;
}

/* Go on with libipt until the slice is over. Returns 1 when the rows are full, 0, or negative errno. */
static int step_libipt(struct ptd_cached *cached, struct ptd_rows *rows)
{
    if (cached->behind)
        return catch_up(cached, rows);
    int more = ptd_decoder_step(cached->libipt, rows);
    if (more == 0)
        conclude(cached);
    return more;
}

/* ---- our segments ---- */

static bool is_odd(int status)
{
    return status == -EILSEQ || status == -ETIME;
}

/* Keep what is remembered of the code bounded. Returns 0 or -ENOMEM. */
static int bound(struct ptd_segment *segment)
{
    struct addresses addresses = {0};
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

/* Arrive at the PSB at `at`: what lies before the one before it is good then. Decode up to the next. */
static int decode_segment(struct ptd_cached *cached)
{
    struct ptd_segment *segment = &cached->segment;
    uint64_t offset = cached->at;
    int status = bound(segment);
    if (status < 0)
        return status;
    struct checkpoint here = checkpoint_of(segment);
    status = ptd_segment_arrive(segment, &offset);
    if (status >= 0) {
        cached->before = cached->last;
        cached->last = here;
        approve(cached, cached->before.filled, &segment->place);
        status = ptd_segment_decode(segment, &offset);
    }
    if (status == 1)
        cached->at = offset;
    else if (status == 0)
        status = finish(cached);
    return is_odd(status) ? hand_over(cached) : status < 0 ? status : 0;
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
    segment->place.fresh = true;
    segment->place.event_before = segment->place.event_last = PTD_NO_ROW;
    ptd_run_reset(&segment->run);
    cached->before = cached->last = checkpoint_of(segment);
    cached->given = (struct given){.seq = slice->seq};
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
    ptd_rows_destroy(cached->known);
    ptd_buffer_deinit(&cached->segment.buffer);
    free(cached);
}
