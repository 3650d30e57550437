/* SPDX-License-Identifier: MIT */
/*
 * The block loop: packets of one slice in, rows out.
 *
 * libipt's block decoder gives one block after the other; each is numbered (blocks.c) and appended to the run being
 * executed; where the run is cut it is numbered as a path (paths.c) and becomes a row of flow. A run is cut after a
 * number of decisions (conditional branches and returns), at indirect jumps and calls, at far transfers, events and
 * PSBs, and where decoding stopped. After an error the decoder looks for the next PSB; what lies between is a gap,
 * counted to the byte: bytes of a slice = bytes decoded + bytes in gaps, always.
 *
 * Where a slice ends at a PSB, its last packet is not yet the end: execution went on, through code that needs no
 * packet, to the address in the PSB+ (slice.stop_ip), where the next slice begins. libipt says pts_eos as soon as
 * the last packet is used up, so that what it decodes from then on is that tail and nothing else.
 *
 * A decoder borrows the packets, the space and the tables. Not thread-safe.
 */
#include "api.h"
#include "columns.h"
#include "events.h"
#include "pace.h"
#include "psb.h"
#include "tables.h"
#include "trail.h"
#include "walker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * Blocks in a row that need no packet before we say the code runs in circles. Straight recursion can use up an 8 MiB
 * stack in a million calls; nothing real needs more.
 */
enum { MAX_BLOCKS_WITHOUT_PACKET = 1 << 22 };

/* Timing packets may lie between a PSB and the next packet of flow; beyond this many bytes we do not look. */
enum { MAX_READ_AHEAD = 1 << 16 };

enum state {
    SYNCHRONISING, /* looking for the next PSB */
    RUNNING,
    STOPPING, /* no packet is left: on to the address at which the next slice begins */
    DONE
};

/* A gap that is open: where it began is known, where it ends is not. */
struct open_gap {
    bool open;
    struct ptd_gap_row row;
};

struct ptd_decoder {
    struct pt_block_decoder *libipt;
    struct ptd_tables *tables;
    struct ptd_space *space;
    struct ptd_slice slice;
    struct ptd_progress progress;
    enum state state;
    int status;               /* of libipt, between two turns */
    uint64_t sync;            /* offset of the PSB libipt was last synchronised at */
    uint64_t psb_taken;       /* a PSB before this offset is behind us: its events were taken */
    uint64_t behind;          /* offset up to which packets were read when the last path or event was complete */
    uint64_t before;          /* where that was the time before: what lies between may be an event not yet due */
    uint64_t boundary;        /* the same, where a packet is known to begin */
    uint64_t ahead;           /* offset of a PSB read while failing, 0 none: decoding can go on there */
    bool used;                /* blocks came after the packets up to `behind` */
    uint32_t without_packet;  /* blocks since the last one that used a packet */
    uint32_t sure;            /* blocks of the run up to and with the last one that used a packet */
    bool overflowed;          /* the last event was an overflow: what comes after is not known to be the same */
    struct pt_block held;     /* the beginning of a block of which more may come; no instructions: there is none */
    uint64_t held_end;        /* the address after it */
    int32_t last;             /* the block appended last */
    struct open_gap gap;
    struct ptd_rows *rows; /* being filled by this step */
    bool paced;
    struct ptd_pace pace;
    size_t switched; /* switches that are behind us */
    struct ptd_trail trail; /* where the run is in it */
    struct ptd_run run;
};

/* ---- where we are ---- */

static uint64_t decoder_offset(const struct ptd_decoder *decoder)
{
    uint64_t offset = 0;
    if (pt_blk_get_offset(decoder->libipt, &offset) < 0)
        offset = decoder->sync;
    return offset;
}

/* Everything read so far has become rows. */
static void settle(struct ptd_decoder *decoder)
{
    uint64_t offset = decoder_offset(decoder);
    if (offset != decoder->behind) {
        decoder->before = decoder->behind;
        decoder->used = false;
    }
    decoder->behind = offset;
    if (decoder->behind < decoder->slice.size) /* at the end libipt counts half a packet as read */
        decoder->boundary = decoder->behind;
}

/* Take over the time libipt knows by now. */
static void note_time(struct ptd_decoder *decoder, struct ptd_rows *rows)
{
    uint64_t tsc;
    uint32_t lost_mtc, lost_cyc;
    if (decoder->paced || pt_blk_time(decoder->libipt, &tsc, &lost_mtc, &lost_cyc) < 0 || tsc == decoder->progress.tsc)
        return;
    decoder->progress.tsc = tsc;
    ptd_rows_clock(rows, decoder->progress.seq + decoder->run.length, tsc);
}

/* ---- paths ---- */

/* Hold the block appended last against the packets it used. */
static void pace_block(struct ptd_decoder *decoder, const struct ptd_block_hit *hit)
{
    const struct ptd_pace_block block = {
        .next = decoder->progress.seq + decoder->run.length,
        .ip = hit->ip,
        .end_ip = hit->end_ip,
        .mode = hit->mode,
        .instructions = hit->instructions,
        .last = (enum ptd_class)hit->last,
    };
    ptd_pace_block(&decoder->pace, decoder->rows, ptd_space_walker(decoder->space), &block);
}

/* The run ends in a block of a class: true when it is to be cut after it. */
static inline bool ends_run(struct ptd_decoder *decoder, enum ptd_class last)
{
    struct ptd_run *run = &decoder->run;
    switch (last) {
    case PTD_COND_JUMP:
    case PTD_RETURN:
        decoder->without_packet = 0;
        decoder->sure = run->length;
        return ++run->decisions >= decoder->tables->paths.decisions_limit || run->length == PATH_MAX_BLOCKS;
    case PTD_IND_JUMP:
    case PTD_IND_CALL:
    case PTD_SYSCALL:
    case PTD_FAR:
        decoder->without_packet = 0;
        return true;
    default:
        decoder->without_packet++;
        return run->length == PATH_MAX_BLOCKS;
    }
}

/* Append a block; true when the run is to be cut after it. */
static bool append(struct ptd_decoder *decoder, const struct ptd_block_hit *hit)
{
    struct ptd_run *run = &decoder->run;
    decoder->used = true;
    decoder->last = hit->block;
    ptd_trail_learn(&decoder->trail, hit, run->length);
    run->blocks[run->length++] = hit->block;
    if (decoder->paced)
        pace_block(decoder, hit);
    return ends_run(decoder, (enum ptd_class)hit->last);
}

/*
 * Append a block that came in the same place the last time, and that a branch ends; nothing may be held. Returns 1
 * when the run is to be cut after it, 0; -1 when it is another block.
 */
static inline int append_known(struct ptd_decoder *decoder, const struct pt_block *block)
{
    struct ptd_run *run = &decoder->run;
    const struct ptd_trail_node *node = ptd_trail_guess(&decoder->trail, block, run->length);
    if (!node || node->last == PTD_OTHER)
        return -1;
    ptd_trail_follow(&decoder->trail, node);
    decoder->used = true;
    decoder->last = node->block;
    run->blocks[run->length++] = node->block;
    return ends_run(decoder, (enum ptd_class)node->last);
}

/* Append the block that is held, if any. Returns 1 when the run is to be cut after it, 0 or negative errno. */
static int release(struct ptd_decoder *decoder)
{
    struct pt_block *held = &decoder->held;
    if (!held->ninsn)
        return 0;
    const struct ptd_block_hit *hit;
    int error = ptd_blocks_intern(&decoder->tables->blocks, decoder->space, held, &hit);
    if (error < 0)
        return error;
    held->ninsn = 0;
    return append(decoder, hit);
}

/* The number of the path the run is. Returns 0 or negative errno. */
static int number(struct ptd_decoder *decoder, int32_t *ret)
{
    struct ptd_tables *tables = decoder->tables;
    struct ptd_run *run = &decoder->run;
    struct ptd_trail_node *end = ptd_trail_end(&decoder->trail, run->length);
    if (end && end->path >= 0) {
        *ret = end->path;
        return 0;
    }
    ptd_run_rehash(run);
    int error = ptd_paths_intern(&tables->paths, run, tables->blocks.instructions, tables->blocks.last, ret);
    if (error == 0 && end)
        end->path = *ret;
    return error;
}

/* End the run: number it, write its row. Returns 0 or negative errno. */
static int cut(struct ptd_decoder *decoder, struct ptd_rows *rows)
{
    struct ptd_run *run = &decoder->run;
    int error = release(decoder);
    if (error < 0 || !run->length)
        return error < 0 ? error : 0;
    struct ptd_tables *tables = decoder->tables;
    int32_t path;
    error = number(decoder, &path);
    if (error < 0)
        return error;
    ptd_rows_flow(rows, decoder->progress.seq, path);
    if (decoder->progress.first_block < 0)
        decoder->progress.first_block = run->blocks[0];
    decoder->progress.seq += run->length;
    decoder->progress.instructions += (uint32_t)tables->paths.instructions[path];
    decoder->progress.branches += (uint32_t)tables->paths.branches[path];
    ptd_trail_cut(&decoder->trail, run->length);
    ptd_run_reset(run);
    decoder->sure = 0;
    return 0;
}

/* Instruction lengths of a block from its beginning on; how many are known. */
static uint32_t lengths_of(const struct ptd_decoder *decoder, const struct pt_block *block, uint8_t *lengths)
{
    struct ptd_walk walk;
    ptd_walker_walk(ptd_space_walker(decoder->space), block->ip, block->mode, block->ninsn, lengths, &walk);
    return walk.instructions;
}

/* Move the first `count` instructions of a block to the end of the one that is held. */
static void fill_held(struct ptd_decoder *decoder, struct pt_block *block, uint32_t count)
{
    uint8_t lengths[UINT16_MAX];
    if (lengths_of(decoder, block, lengths) < count)
        return;
    for (uint32_t i = 0; i < count; i++) {
        decoder->held.end_ip = block->ip;
        block->ip += lengths[i];
    }
    decoder->held.ninsn = (uint16_t)(decoder->held.ninsn + count);
    block->ninsn = (uint16_t)(block->ninsn - count);
}

/* Put the block that is held before `block`, or append it if they are not one. Returns 0 or negative errno. */
static int join(struct ptd_decoder *decoder, struct ptd_rows *rows, struct pt_block *block)
{
    struct pt_block *held = &decoder->held;
    if (block->ip == decoder->held_end && block->isid == held->isid && block->mode == held->mode) {
        uint32_t room = (uint32_t)(UINT16_MAX - held->ninsn);
        if (block->ninsn <= room) {
            block->ip = held->ip;
            block->ninsn = (uint16_t)(block->ninsn + held->ninsn);
            held->ninsn = 0;
            return 0;
        }
        fill_held(decoder, block, room);
    }
    int error = release(decoder);
    return error > 0 ? cut(decoder, rows) : error;
}

/* Whether a block ends although no branch and no event ends it; `end` becomes the address after it. */
static bool ends_in_nothing(const struct ptd_decoder *decoder, const struct pt_block *block, uint64_t *end)
{
    struct ptd_walk walk;
    if (ptd_walker_walk(ptd_space_walker(decoder->space), block->end_ip, block->mode, 1, NULL, &walk) < 0)
        return false;
    *end = walk.end;
    return walk.last == PTD_OTHER;
}

/*
 * Add a block libipt decoded; `whole`: an event or an error ends it. libipt ends blocks also where entries of its
 * block cache end, and what is in there depends on what was decoded before: a block that nothing ends is held until
 * the rest of it is there. Returns 1 when the run is to be cut after it, 0 or negative errno.
 */
static int take_block(struct ptd_decoder *decoder, struct ptd_rows *rows, struct pt_block *block, bool whole)
{
    struct ptd_blocks *blocks = &decoder->tables->blocks;
    if (decoder->held.ninsn) {
        int error = join(decoder, rows, block);
        if (error < 0)
            return error;
    }
    const struct ptd_block_hit *hit = ptd_blocks_find(blocks, block);
    if (!whole && (!hit || hit->last == PTD_OTHER) && ends_in_nothing(decoder, block, &decoder->held_end)) {
        decoder->held = *block;
        decoder->without_packet++;
        return 0;
    }
    if (!hit) {
        int error = ptd_blocks_intern_new(blocks, decoder->space, block, &hit);
        if (error < 0)
            return error;
    }
    return append(decoder, hit);
}

/* Drop the blocks after the last one that used a packet. */
static void forget_tail(struct ptd_decoder *decoder)
{
    struct ptd_run *run = &decoder->run;
    decoder->held.ninsn = 0;
    decoder->trail.length = PTD_TRAIL_LOST;
    ptd_run_reset(run);
    for (uint32_t i = 0; i < decoder->sure; i++)
        ptd_run_append(run, run->blocks[i]);
}

/* ---- switches ---- */

/* Carry out the switches whose time has come; the run is cut there. Returns 0 or negative errno. */
static int follow(struct ptd_decoder *decoder, struct ptd_rows *rows)
{
    const struct ptd_slice *slice = &decoder->slice;
    size_t before = decoder->switched;
    uint64_t now = decoder->pace.now;
    decoder->progress.tsc = now;
    while (decoder->switched < slice->switch_count &&
           (!decoder->switched || slice->switches[decoder->switched].tsc <= now))
        decoder->switched++;
    if (decoder->switched == before)
        return 0;
    const struct ptd_switch *last = &slice->switches[decoder->switched - 1];
    int error = cut(decoder, rows);
    decoder->space = last->space;
    if (pt_blk_set_image(decoder->libipt, ptd_space_image(decoder->space)) < 0)
        return -EINVAL;
    (void)ptd_rows_unsay(rows, decoder->progress.seq);
    ptd_rows_piece(rows, last->thread, now, &decoder->progress);
    if (now)
        ptd_rows_moment(rows, decoder->progress.seq, now, 0);
    return error;
}

/* ---- gaps ---- */

static void open_gap(struct ptd_decoder *decoder, enum ptd_gap kind, int32_t reason, uint64_t offset, uint64_t ip)
{
    decoder->state = SYNCHRONISING;
    decoder->gap.open = true;
    decoder->gap.row = (struct ptd_gap_row){
        .seq = decoder->progress.seq,
        .tsc = decoder->progress.tsc,
        .kind = kind,
        .offset = offset,
        .has_ip = ip != 0,
        .ip = ip,
        .reason = reason,
    };
}

/* Close the open gap, if any, at `offset` in the slice. */
static void close_gap(struct ptd_decoder *decoder, struct ptd_rows *rows, uint64_t offset)
{
    if (!decoder->gap.open)
        return;
    struct ptd_gap_row *row = &decoder->gap.row;
    row->bytes = offset > row->offset ? (int64_t)(offset - row->offset) : 0;
    decoder->progress.lost += (uint64_t)row->bytes;
    row->offset += decoder->slice.offset;
    ptd_rows_gap(rows, row);
    decoder->gap.open = false;
}

static bool all_padding(const uint8_t *packets, uint64_t size)
{
    for (uint64_t i = 0; i < size; i++)
        if (packets[i])
            return false;
    return true;
}

/* The slice is over, but for a packet cut short at its end, of which libipt says nothing. */
static void finish(struct ptd_decoder *decoder, struct ptd_rows *rows)
{
    const struct ptd_slice *slice = &decoder->slice;
    uint64_t offset = ptd_packets_end(slice->packets, slice->size, decoder->boundary);
    if (offset < slice->size) {
        open_gap(decoder, PTD_GAP_TRUNCATED, PTD_WHY_CUT_PACKET, offset, 0);
        close_gap(decoder, rows, slice->size);
    }
    decoder->state = DONE;
}

/* ---- turns of the loop ---- */

/* A gap of no bytes at the end of the slice: its packets and the PSB+ behind it contradict each other. */
static void contradiction(struct ptd_decoder *decoder, struct ptd_rows *rows, enum ptd_reason reason)
{
    open_gap(decoder, PTD_GAP_DECODE_ERROR, (int32_t)reason, decoder->slice.size, decoder->slice.stop_ip);
    close_gap(decoder, rows, decoder->slice.size);
}

/*
 * Tracing is off: keep where it would go on. libipt says an enabled event resumes when it is there, but a decoder of
 * the next slice begins without that knowledge. It tells in a block that it refuses to decode.
 */
static void note_off(struct ptd_decoder *decoder)
{
    struct pt_block block;
    memset(&block, 0, sizeof block);
    pt_blk_next(decoder->libipt, &block, sizeof block);
    decoder->progress.off = block.ip != 0 && !block.ninsn;
    decoder->progress.off_ip = block.ip;
}

/* All packets are used up. */
static void end(struct ptd_decoder *decoder, struct ptd_rows *rows)
{
    bool on = !(decoder->status & pts_ip_suppressed);
    if (decoder->slice.has_stop && on) {
        decoder->state = STOPPING;
        decoder->without_packet = 0;
        return;
    }
    if (decoder->slice.has_stop && !decoder->overflowed)
        contradiction(decoder, rows, PTD_WHY_STOP_WHILE_OFF);
    if (!on)
        note_off(decoder);
    finish(decoder, rows);
}

/* No PSB is left: the rest of the slice is lost. */
static void give_up(struct ptd_decoder *decoder, struct ptd_rows *rows)
{
    if (decoder->gap.open && decoder->gap.row.reason == PTD_WHY_NO_PSB_YET)
        decoder->gap.row.reason = PTD_WHY_NO_PSB;
    if (decoder->gap.open && decoder->gap.row.reason == PTD_WHY_NO_PSB &&
        all_padding(decoder->slice.packets, decoder->slice.size))
        decoder->gap.open = false;
    close_gap(decoder, rows, decoder->slice.size);
    decoder->state = DONE;
}

/* Whether the PSB+ at `psb` is complete: when libipt is at the end nevertheless, nothing that happened is behind it. */
static bool only_psb(const struct ptd_decoder *decoder, uint64_t psb)
{
    uint64_t ip;
    return ptd_psb_ip(decoder->slice.packets, decoder->slice.size, psb, &ip) >= 0;
}

/* Go to the next PSB; the open gap ends there. */
static void synchronise(struct ptd_decoder *decoder, struct ptd_rows *rows)
{
    uint64_t before = decoder->sync, sync = 0;
    bool first = decoder->gap.open && decoder->gap.row.reason == PTD_WHY_NO_PSB_YET;
    int status = decoder->ahead ? pt_blk_sync_set(decoder->libipt, decoder->ahead)
                                : pt_blk_sync_forward(decoder->libipt);
    decoder->ahead = 0;
    int known = pt_blk_get_sync_offset(decoder->libipt, &sync);
    if (status == -pte_eos && known >= 0 && (first || sync > before) && only_psb(decoder, sync)) {
        decoder->sync = decoder->boundary = decoder->behind = sync;
        if (first && all_padding(decoder->slice.packets, sync))
            decoder->gap.open = false;
        close_gap(decoder, rows, sync);
        decoder->status = pts_eos | pts_ip_suppressed;
        end(decoder, rows);
        return;
    }
    if (status == -pte_eos || known < 0 || (!first && sync <= before)) {
        if (!decoder->gap.open)
            open_gap(decoder, PTD_GAP_TRUNCATED, PTD_WHY_CUT_PACKET, before, 0);
        give_up(decoder, rows);
        return;
    }
    /* libipt had read all of the segment before it found the error: some packet of it was at fault */
    if (decoder->gap.open && decoder->gap.row.kind == PTD_GAP_DECODE_ERROR && decoder->gap.row.offset >= sync)
        decoder->gap.row.offset = ptd_last_move(decoder->slice.packets, decoder->slice.size, before, sync);
    decoder->sync = decoder->boundary = decoder->before = decoder->behind = sync;
    if (first && all_padding(decoder->slice.packets, sync))
        decoder->gap.open = false;
    close_gap(decoder, rows, sync);
    if (status < 0) {
        open_gap(decoder, PTD_GAP_DECODE_ERROR, -status, sync, 0);
        return;
    }
    decoder->status = status;
    decoder->without_packet = 0;
    decoder->state = RUNNING;
    settle(decoder);
    note_time(decoder, rows);
    if (decoder->paced) {
        ptd_pace_sync(&decoder->pace, rows, sync, decoder->progress.seq);
        if (follow(decoder, rows) < 0)
            open_gap(decoder, PTD_GAP_DECODE_ERROR, pte_bad_image, sync, 0);
    }
}

static void add_event(struct ptd_decoder *decoder, struct ptd_rows *rows, const struct pt_event *event)
{
    settle(decoder);
    struct ptd_event_row row = ptd_event_row(event);
    if (decoder->paced) {
        ptd_pace_event(&decoder->pace, rows, event, decoder->progress.seq);
        (void)follow(decoder, rows); /* the run is cut already: nothing to be numbered that could fail */
    } else if (event->has_tsc && event->tsc > decoder->progress.tsc) { /* else what we know was read ahead: it is later */
        decoder->progress.tsc = event->tsc;
        ptd_rows_clock(rows, decoder->progress.seq, event->tsc);
    }
    row.seq = decoder->progress.seq;
    row.tsc = event->has_tsc && !decoder->paced ? event->tsc : decoder->progress.tsc;
    row.offset = decoder->slice.offset + decoder->behind;
    ptd_rows_event(rows, &row);
    decoder->overflowed = event->type == ptev_overflow;
    if (!decoder->overflowed)
        return;
    struct ptd_gap_row gap = {
        .seq = row.seq, .tsc = row.tsc, .kind = PTD_GAP_OVERFLOW, .offset = row.offset,
        .has_ip = row.has_target, .ip = row.target, .reason = PTD_WHY_OVERFLOW,
    };
    ptd_rows_gap(rows, &gap);
}

/* Take the pending event. Returns libipt's status. */
static int take_event(struct ptd_decoder *decoder, struct pt_event *event)
{
    uint64_t before = decoder_offset(decoder);
    memset(event, 0, sizeof *event);
    int status = pt_blk_event(decoder->libipt, event, sizeof *event);
    if (status >= 0 && event->status_update) /* it came with a PSB+, which is behind us now */
        decoder->psb_taken = before;
    return status;
}

/* Take pending events while there is room for their rows. Returns libipt's status. */
static int take_events(struct ptd_decoder *decoder, struct ptd_rows *rows, int status)
{
    while (status >= 0 && status & pts_event_pending && ptd_rows_have_room(rows)) {
        struct pt_event event;
        status = take_event(decoder, &event);
        if (status >= 0)
            add_event(decoder, rows, &event);
    }
    decoder->without_packet = 0;
    return status;
}

/*
 * libipt 2.0 looks for a far transfer when a TIP.PGD without an IP turns tracing off. Processors write that packet
 * after any branch out of what is traced: take the event where we are. True when there was such an event.
 */
static bool disabled_by_branch(struct ptd_decoder *decoder, struct ptd_rows *rows, int *status)
{
    struct pt_event event;
    *status = take_event(decoder, &event);
    if (*status < 0 || event.type != ptev_disabled || !event.ip_suppressed)
        return false;
    add_event(decoder, rows, &event);
    return true;
}

/*
 * libipt reads packets ahead of what it decodes: a PSB among them, nothing of whose segment was executed yet, is the
 * best place to go on after an error; synchronising forward would miss it. 0: there is none.
 */
static uint64_t psb_ahead(const struct ptd_decoder *decoder)
{
    const struct ptd_slice *slice = &decoder->slice;
    uint64_t end = decoder_offset(decoder), floor = decoder->sync + 1;
    if (floor < decoder->psb_taken)
        floor = decoder->psb_taken;
    if (end > MAX_READ_AHEAD && floor < end - MAX_READ_AHEAD)
        floor = end - MAX_READ_AHEAD;
    uint64_t psb = ptd_psb_before(slice->packets, floor, end);
    return psb != UINT64_MAX && ptd_psb_only(slice->packets, slice->size, psb, end) ? psb : 0;
}

static void fail(struct ptd_decoder *decoder, struct ptd_rows *rows, int reason, uint64_t ip)
{
    if (reason == pte_eos) {
        finish(decoder, rows);
        return;
    }
    enum ptd_gap kind = reason == pte_nomap ? PTD_GAP_MISSING_IMAGE : PTD_GAP_DECODE_ERROR;
    decoder->ahead = psb_ahead(decoder);
    uint64_t lost = ptd_waiting(decoder->slice.packets, decoder->slice.size, decoder->before, decoder->behind);
    if (reason == pte_bad_context && !decoder->used) { /* the last packet read has no place there */
        uint64_t misplaced = ptd_last_move(decoder->slice.packets, decoder->slice.size, decoder->before, decoder->behind);
        lost = misplaced < lost ? misplaced : lost;
    }
    if (decoder->ahead && decoder->ahead < lost)
        lost = decoder->ahead;
    open_gap(decoder, kind, reason, lost, ip);
}

/* The address after a block. */
static uint64_t end_of(const struct ptd_decoder *decoder, int32_t block)
{
    const struct ptd_blocks *blocks = &decoder->tables->blocks;
    return blocks->ip[block] + (uint64_t)blocks->size[block];
}

/* Decode blocks while events are not pending. Returns libipt's status; errors of our own are in *error. */
static int run_blocks(struct ptd_decoder *decoder, struct ptd_rows *rows, int status, uint64_t *ip, int *error)
{
    while (!(status & (pts_event_pending | pts_eos))) {
        struct pt_block block;
        bool off = status & pts_ip_suppressed;
        status = pt_blk_next(decoder->libipt, &block, sizeof block);
        *ip = block.ip;
        if (off) /* tracing is off: what libipt makes up where it went off did not run */
            return status == -pte_eos ? status : -pte_no_enable;
        if (status == -pte_eos && decoder->slice.has_stop) {
            /* half a packet at the end: how far execution got before the next slice is not known */
            forget_tail(decoder);
            return status;
        }
        if (block.ninsn) {
            *ip = block.end_ip;
            bool whole = status < 0 || status & pts_event_pending;
            int full = whole || decoder->held.ninsn || decoder->paced ? -1 : append_known(decoder, &block);
            if (full < 0)
                full = take_block(decoder, rows, &block, whole);
            if (status == -pte_nomap && full >= 0)
                *ip = end_of(decoder, decoder->last);
            if (full > 0) {
                full = cut(decoder, rows);
                note_time(decoder, rows);
                if (status >= 0)
                    settle(decoder);
            }
            if (full >= 0 && decoder->paced)
                full = follow(decoder, rows);
            if (full >= 0 && !decoder->run.length && !ptd_rows_have_room(rows))
                return status;
            if (full < 0) {
                *error = full;
                return 0;
            }
        } else {
            decoder->without_packet++;
        }
        if (status < 0 || decoder->without_packet > MAX_BLOCKS_WITHOUT_PACKET)
            return status;
    }
    return status;
}

/* Cut `block` before the instruction at `ip`: false when none of its instructions is there. */
static bool cut_block(struct ptd_decoder *decoder, struct pt_block *block, uint64_t ip)
{
    uint8_t lengths[UINT16_MAX];
    if (!block->ninsn || ip < block->ip || ip > block->end_ip)
        return false;
    uint32_t count = lengths_of(decoder, block, lengths);
    uint64_t at = block->ip, last = at;
    for (uint32_t i = 0; i < count; i++) {
        if (at == ip) {
            block->ninsn = (uint16_t)i;
            block->end_ip = last;
            block->truncated = 0;
            return true;
        }
        last = at;
        at += lengths[i];
    }
    return false;
}

/* Add a block of the tail; `ip` becomes the address after it. Returns 0 or negative errno. */
static int add_to_tail(struct ptd_decoder *decoder, struct ptd_rows *rows, struct pt_block *block, bool whole,
                       uint64_t *ip)
{
    uint32_t blocks = decoder->without_packet + 1;
    int full = block->ninsn ? take_block(decoder, rows, block, whole) : 0;
    if (full >= 0 && block->ninsn && whole && decoder->run.length)
        *ip = end_of(decoder, decoder->last);
    decoder->without_packet = blocks; /* whatever they end in, they use no packets */
    return full > 0 ? cut(decoder, rows) : full;
}

/* Go on, without packets, until execution stands where the next slice begins. Returns 0 or negative errno. */
static int stop(struct ptd_decoder *decoder, struct ptd_rows *rows)
{
    int status = decoder->status, error = 0;
    uint64_t ip = 0;
    bool there = false;
    while (status >= 0 && !there && error == 0 && decoder->without_packet <= MAX_BLOCKS_WITHOUT_PACKET) {
        if (!ptd_rows_have_room(rows))
            return 0;
        struct pt_block block;
        status = pt_blk_next(decoder->libipt, &block, sizeof block);
        ip = block.ip;
        there = cut_block(decoder, &block, decoder->slice.stop_ip);
        error = add_to_tail(decoder, rows, &block, there || status < 0, &ip);
    }
    if (error == 0)
        error = cut(decoder, rows);
    if (error < 0)
        return error;
    if (there) {
        finish(decoder, rows);
    } else if (status >= 0 || status == -pte_eos) {
        contradiction(decoder, rows, PTD_WHY_STOP_MISSED);
        finish(decoder, rows);
    } else {
        fail(decoder, rows, -status, ip);
    }
    return 0;
}

/* Whether the slice's packets are used up and execution goes on to where the next slice begins. */
static bool leads_on(const struct ptd_decoder *decoder, int status)
{
    return status >= 0 && decoder->slice.has_stop &&
           (status & (pts_event_pending | pts_eos | pts_ip_suppressed)) == pts_eos;
}

/* One turn: events, then blocks up to the next event, error or end. Returns 0 or negative errno. */
static int run(struct ptd_decoder *decoder, struct ptd_rows *rows)
{
    uint64_t ip = 0;
    int status = decoder->status, error = 0;
    if (status & pts_event_pending) {
        status = take_events(decoder, rows, status);
    } else if (status & pts_eos) {
        end(decoder, rows);
        return 0;
    } else {
        status = run_blocks(decoder, rows, status, &ip, &error);
        if (error < 0)
            return error;
        bool circles = decoder->without_packet > MAX_BLOCKS_WITHOUT_PACKET;
        if (leads_on(decoder, status)) {
            note_time(decoder, rows);
            settle(decoder);
        } else if (status < 0 || circles || status & (pts_event_pending | pts_eos)) {
            error = cut(decoder, rows);
            note_time(decoder, rows);
            if (status >= 0)
                settle(decoder);
        }
        if (status >= 0 && circles) {
            fail(decoder, rows, PTD_WHY_NO_PROGRESS, ip);
            return error;
        }
        if (status == -pte_bad_query && !disabled_by_branch(decoder, rows, &status))
            status = -pte_bad_query;
    }
    decoder->status = status;
    if (status < 0)
        fail(decoder, rows, -status, ip);
    return error;
}

int ptd_decoder_step(struct ptd_decoder *decoder, struct ptd_rows *rows)
{
    decoder->rows = rows;
    while (decoder->state != DONE && ptd_rows_have_room(rows)) {
        if (decoder->state == SYNCHRONISING) {
            synchronise(decoder, rows);
            continue;
        }
        int error = decoder->state == STOPPING ? stop(decoder, rows) : run(decoder, rows);
        if (error < 0)
            return error;
    }
    decoder->progress.offset = decoder->state == DONE ? decoder->slice.size : decoder_offset(decoder);
    return decoder->state != DONE;
}

void ptd_decoder_progress(const struct ptd_decoder *decoder, struct ptd_progress *ret)
{
    *ret = decoder->progress;
}

/* ---- life ---- */

static void set_filters(struct pt_conf_addr_filter *filter, const struct ptd_cpu *cpu)
{
    uint64_t *bounds[] = {&filter->addr0_a, &filter->addr0_b, &filter->addr1_a, &filter->addr1_b,
                          &filter->addr2_a, &filter->addr2_b, &filter->addr3_a, &filter->addr3_b};
    for (int i = 0; i < 4; i++) {
        filter->config.addr_cfg |= (uint64_t)(cpu->filter_kind[i] & 0xF) << 4 * i;
        *bounds[2 * i] = cpu->filter_first[i];
        *bounds[2 * i + 1] = cpu->filter_last[i];
    }
}

static int configure(struct ptd_decoder *decoder, const struct ptd_cpu *cpu)
{
    struct pt_config config;
    memset(&config, 0, sizeof config);
    pt_config_init(&config);
    /* libipt reads the buffer only; its type lacks the const */
    config.begin = (uint8_t *)(uintptr_t)decoder->slice.packets;
    config.end = config.begin + decoder->slice.size;
    config.flags.variant.block.end_on_call = 1;
    config.flags.variant.block.end_on_jump = 1;
    config.mtc_freq = cpu->mtc_freq;
    config.nom_freq = cpu->nom_freq;
    config.cpuid_0x15_eax = cpu->cpuid_0x15_eax;
    config.cpuid_0x15_ebx = cpu->cpuid_0x15_ebx;
    config.flags.variant.block.enable_tick_events = cpu->ticks != 0;
    set_filters(&config.addr_filter, cpu);
    if (cpu->intel) {
        config.cpu.vendor = pcv_intel;
        config.cpu.family = cpu->family;
        config.cpu.model = cpu->model;
        config.cpu.stepping = cpu->stepping;
        /* a processor libipt does not know has no errata it could work around */
        int error = pt_cpu_errata(&config.errata, &config.cpu);
        if (error < 0 && error != -pte_bad_cpu)
            return -EINVAL;
    }
    decoder->libipt = pt_blk_alloc_decoder(&config);
    if (!decoder->libipt)
        return -ENOMEM;
    decoder->paced = cpu->exact_time || decoder->slice.switch_count;
    if (decoder->paced && ptd_pace_init(&decoder->pace, &config, cpu) < 0)
        return -ENOMEM;
    return pt_blk_set_image(decoder->libipt, ptd_space_image(decoder->space)) < 0 ? -EINVAL : 0;
}

int ptd_decoder_create(struct ptd_tables *tables, struct ptd_space *space, const struct ptd_cpu *cpu,
                       const struct ptd_slice *slice, struct ptd_decoder **ret)
{
    struct ptd_decoder *decoder = calloc(1, sizeof *decoder);
    if (!decoder)
        return -ENOMEM;
    decoder->tables = tables;
    decoder->space = space;
    decoder->slice = *slice;
    decoder->progress = (struct ptd_progress){.seq = slice->seq, .tsc = slice->tsc, .first_block = -1};
    open_gap(decoder, PTD_GAP_TRUNCATED, PTD_WHY_NO_PSB_YET, 0, 0);
    int error = slice->size ? configure(decoder, cpu) : -EINVAL;
    if (error == 0)
        error = ptd_trail_init(&decoder->trail);
    if (error < 0) {
        ptd_decoder_destroy(decoder);
        return error;
    }
    *ret = decoder;
    return 0;
}

void ptd_decoder_destroy(struct ptd_decoder *decoder)
{
    if (!decoder)
        return;
    pt_blk_free_decoder(decoder->libipt);
    ptd_pace_deinit(&decoder->pace);
    ptd_trail_deinit(&decoder->trail);
    free(decoder);
}
