/* SPDX-License-Identifier: MIT */
/*
 * The path decoder: PSB segments with the cache of steps, and with libipt (flow.c) where that cannot be.
 *
 * A segment is good when it was decoded up to where the next PSB says that execution stood, and so was the one behind
 * it: libipt reads ahead, so what it makes of a segment's last packets depends on those behind the PSB. Rows of good
 * segments go out. When a segment is not good, libipt decodes the whole slice, from its beginning; the rows that are
 * out already are the same and are left out of its own. So the tables are libipt's, whatever is in the packets; which
 * of the two decodes a slice depends on its packets and code alone.
 *
 * A decoder borrows the packets, the space and the tables. What it remembers of the code lives with the images and
 * serves one decoder after the other. Memory: what cached_steps.c and cached_buffer.h keep. Not thread-safe.
 */
#include "cached_segment.h"
#include "config.h"
#include "images.h"
#include "psb.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* How far rows, blocks and paths were when a PSB was arrived at. */
struct checkpoint {
    struct ptd_filled filled;
    int64_t seq; /* of flow up to there */
    size_t blocks, legs, paths;
};

enum state { DECODING, HANDED_OVER, DONE };

/* Rows that are out. */
struct given {
    int64_t seq, good; /* flow up to there is out; up to there it may go out */
    struct {
        int64_t seq;
        uint64_t tsc; /* 0: none */
    } moment; /* the last */
    size_t moments, events;
};

struct ptd_cached {
    struct ptd_segment segment;
    struct ptd_cpu cpu;
    enum state state;
    uint64_t at; /* offset of the PSB decoding goes on at */
    struct checkpoint before, last; /* at the last two PSBs that were arrived at */
    struct given given;
    size_t legs, paths;         /* before the slice */
    struct ptd_decoder *libipt; /* of the whole slice, when it was handed over */
    bool begun;                 /* the piece of the slice's one thread is out, or is libipt's to say */
    uint64_t began;             /* when it begins */
    bool behind;                /* some of its rows may be out already */
    struct ptd_rows *known;     /* its rows while that is so */
    int64_t known_seq;          /* flow before the next of them */
    bool waiting;               /* they wait for room */
    int more;                   /* what its last step returned then */
    uint64_t handed;            /* bytes */
    int32_t first_block;
};

static struct checkpoint checkpoint_of(const struct ptd_segment *segment)
{
    return (struct checkpoint){.filled = segment->buffer.filled,
                               .seq = segment->steps->joins.seq,
                               .blocks = segment->tables->blocks.count,
                               .legs = segment->tables->legs.count,
                               .paths = segment->tables->paths.count};
}

/* ---- rows that are good ---- */

static void first_of(struct ptd_cached *cached)
{
    const struct ptd_segment *segment = &cached->segment;
    if (cached->first_block < 0 && segment->buffer.good.flow)
        cached->first_block = ptd_tables_first_block_of(segment->tables, segment->buffer.flow_path[0]);
}

/* Rows up to `filled` are good; rows of events without an offset wait for it. */
static void approve(struct ptd_cached *cached, const struct checkpoint *until)
{
    struct ptd_buffer *buffer = &cached->segment.buffer;
    const struct ptd_place *place = &cached->segment.place;
    buffer->good = until->filled;
    cached->given.good = until->seq;
    if (buffer->paced && cached->state != DONE && buffer->good.clock > buffer->taken.clock)
        buffer->good.clock--; /* one that is said next may take its place */
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
    given->seq = given->good;
    if (out->clock) {
        given->moment.seq = buffer->moments.clock_seq[out->clock - 1];
        given->moment.tsc = buffer->moments.clock_tsc[out->clock - 1];
    }
    given->moments += out->clock;
    given->events += out->events;
}

static bool any_good(const struct ptd_buffer *buffer)
{
    return buffer->good.flow || buffer->good.clock || buffer->good.events;
}

/* The slice is of one thread from its beginning on: say so before its first row. */
static void begin_piece(struct ptd_cached *cached, struct ptd_rows *rows)
{
    const struct ptd_slice *slice = &cached->segment.slice;
    struct ptd_progress start = {.seq = slice->seq};
    if (slice->switch_count)
        ptd_rows_piece(rows, slice->switches[0].thread, cached->began, &start);
    cached->begun = true;
}

/* Copy good rows out. False: there is no room for all of them. */
static bool hand_out(struct ptd_cached *cached, struct ptd_rows *rows)
{
    struct ptd_buffer *buffer = &cached->segment.buffer;
    if (!cached->begun && (cached->state == DONE || any_good(buffer)))
        begin_piece(cached, rows);
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
    buffer->moments.clock_count = 0;
    cached->given.good = cached->given.seq; /* what may go out, but is not, is dropped */
    ptd_paths_rewind(&segment->tables->legs, cached->before.legs, cached->legs);
    ptd_paths_rewind(&segment->tables->paths, cached->before.paths, cached->paths);
    ptd_blocks_truncate(&segment->tables->blocks, cached->before.blocks);
    cached->behind = cached->given.seq > segment->slice.seq || cached->given.moments || cached->given.events;
    cached->begun = true;
    cached->handed = segment->slice.size;
    cached->state = HANDED_OVER;
    cached->known_seq = segment->slice.seq; /* libipt's decoder joins legs anew: what is out already comes to the same */
    return ptd_decoder_create(segment->tables, segment->space, &cached->cpu, &segment->slice,
                              &cached->libipt);
}

/* Whether a moment is out. Paced ones come again one by one; of others at the same block some may be left out. */
static bool is_given(const struct given *given, bool paced, int64_t seq, uint64_t tsc)
{
    if (paced)
        return given->moments;
    return given->moment.tsc && (seq < given->moment.seq || (seq == given->moment.seq && tsc <= given->moment.tsc));
}

/* Copy rows that are not out yet. */
static void copy_new(struct ptd_cached *cached, struct ptd_rows *rows)
{
    const struct ptd_rows *known = cached->known;
    struct given *given = &cached->given;
    for (size_t i = 0; i < known->flow_count; i++) {
        if (cached->known_seq >= given->seq)
            ptd_rows_flow(rows, known->flow_path[i]);
        cached->known_seq += cached->segment.tables->paths.length[known->flow_path[i]];
    }
    bool paced = cached->segment.buffer.paced;
    for (size_t i = 0; i < known->clock_count; i++) {
        if (!is_given(given, paced, known->clock_seq[i], known->clock_tsc[i]))
            ptd_rows_take_moment(rows, known, i, paced);
        given->moments -= given->moments > 0;
    }
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
                     cached->given.events || (cached->segment.buffer.paced && cached->given.moments);
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

/* The slice is over. */
static int finish(struct ptd_cached *cached)
{
    struct ptd_segment *segment = &cached->segment;
    int error = ptd_segment_stop(segment, segment->slice.has_stop, segment->slice.stop_ip);
    if (error < 0)
        return error;
    ptd_segment_no_more(segment, segment->slice.size);
    cached->state = DONE;
    struct checkpoint all = checkpoint_of(segment);
    approve(cached, &all);
    segment->place.progress.seq = segment->steps->joins.seq;
    segment->place.progress.instructions = segment->steps->joins.instructions;
    segment->place.progress.branches = segment->steps->joins.branches;
    segment->place.progress.off = segment->place.standing == PTD_STANDING_OFF && segment->place.resume_ip;
    segment->place.progress.off_ip = segment->place.progress.off ? segment->place.resume_ip : 0;
    return 0;
}

/* Arrive at the PSB at `at`: what lies before the one before it is good then. Decode up to the next. */
static int decode_segment(struct ptd_cached *cached)
{
    struct ptd_segment *segment = &cached->segment;
    uint64_t offset = cached->at;
    int status = ptd_steps_bound(segment->steps);
    if (status < 0)
        return status;
    struct checkpoint here = checkpoint_of(segment);
    status = ptd_segment_arrive(segment, &offset);
    if (status >= 0) {
        cached->before = cached->last;
        cached->last = here;
        approve(cached, &cached->before);
        status = ptd_segment_decode(segment, &offset);
    }
    if (status == 1)
        cached->at = offset;
    else if (status == 0)
        status = finish(cached);
    return status == -EILSEQ ? hand_over(cached) : status < 0 ? status : 0;
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

/* Which times there are to be, and whose they are. */
static enum ptd_clocks clocks_of(const struct ptd_cpu *cpu, const struct ptd_slice *slice)
{
    if (cpu->exact_time || slice->switch_count)
        return PTD_CLOCKS_PACED;
    bool known = cpu->mtc_freq || cpu->nom_freq || cpu->cpuid_0x15_eax || cpu->cpuid_0x15_ebx;
    return known ? PTD_CLOCKS_LIBIPTS : PTD_CLOCKS_UNKNOWN;
}

/* Packets and flow go side by side from the slice's first PSB on. */
static int pace_init(struct ptd_cached *cached)
{
    struct ptd_segment *segment = &cached->segment;
    const struct ptd_slice *slice = &segment->slice;
    struct ptd_rows *moments = ptd_buffer_moments(&segment->buffer);
    segment->buffer.paced = true;
    int error = moments ? ptd_pace_init(&segment->pace, &cached->cpu, slice) : -ENOMEM;
    if (error < 0)
        return error;
    ptd_pace_sync(&segment->pace, moments, 0, slice->seq);
    ptd_buffer_timed(&segment->buffer);
    cached->began = segment->place.progress.tsc = segment->pace.now;
    return 0;
}

static int cached_init(struct ptd_cached *cached, struct ptd_tables *tables, struct ptd_space *space,
                       const struct ptd_slice *slice)
{
    struct ptd_segment *segment = &cached->segment;
    const struct ptd_cpu *cpu = &cached->cpu;
    segment->tables = tables;
    struct ptd_space *entered = slice->switch_count ? slice->switches[0].space : space;
    int error = ptd_space_use(entered);
    if (error < 0)
        return error;
    segment->space = entered;
    segment->images = ptd_space_images(space);
    segment->slice = *slice;
    segment->clocks = clocks_of(cpu, slice);
    segment->skd022 = cpu->intel && has_skd022(cpu);
    segment->place.progress = (struct ptd_progress){.seq = slice->seq, .tsc = slice->tsc, .first_block = -1};
    segment->place.fresh = true;
    segment->place.event_before = segment->place.event_last = PTD_NO_ROW;
    ptd_run_reset(&segment->run);
    cached->legs = tables->legs.count;
    cached->paths = tables->paths.count;
    cached->given = (struct given){.seq = slice->seq, .good = slice->seq};
    segment->steps = ptd_images_steps(segment->images, segment->space);
    if (!segment->steps || ptd_buffer_init(&segment->buffer) < 0 ||
        ptd_steps_enter(segment->steps, segment->space) < 0)
        return -ENOMEM;
    segment->steps->user = cached;
    struct ptd_joins *joins = &segment->steps->joins;
    joins->blocks_of = ptd_segment_blocks;
    joins->owner = segment;
    ptd_joins_begin(joins, slice->seq);
    cached->before = cached->last = checkpoint_of(segment);
    return ptd_segment_paced(segment) ? pace_init(cached) : 0;
}

/* What only libipt's decoder can do in the whole slice: switches by time, ticks, address filters. */
static bool is_libipts(const struct ptd_cpu *cpu, const struct ptd_slice *slice)
{
    uint8_t filters = cpu->filter_kind[0] | cpu->filter_kind[1] | cpu->filter_kind[2] | cpu->filter_kind[3];
    return cpu->ticks || filters || slice->switch_count > 1;
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
    ptd_pace_deinit(&cached->segment.pace);
    if (cached->segment.space)
        ptd_space_leave(cached->segment.space);
    free(cached);
}
