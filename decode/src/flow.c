/* SPDX-License-Identifier: MIT */
/*
 * The block loop: packets of one slice in, rows out.
 *
 * libipt's block decoder gives one block after the other; each is numbered (blocks.c) and appended to the run being
 * executed; where the run is cut it is a leg, and legs are joined to paths (joins.c), whose executions are the rows of
 * flow (flow_run.c). A run is cut after a number of decisions (conditional branches and returns), at indirect jumps and
 * calls, at far transfers, events and PSBs, and where decoding stopped. After an error the decoder looks for the next
 * PSB (flow_sync.c); what lies between is a gap (flow_gaps.c).
 *
 * Where a slice ends at a PSB, its last packet is not yet the end: execution went on, through code that needs no
 * packet, to the address in the PSB+ (slice.stop_ip), where the next slice begins. libipt says pts_eos as soon as
 * the last packet is used up, so that what it decodes from then on is that tail and nothing else
 * (flow_tail.c).
 *
 * A decoder borrows the packets, the space and the tables. Not thread-safe.
 */
#include "flow.h"
#include "config.h"
#include "psb.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint64_t ptd_flow_offset(const struct ptd_decoder *decoder)
{
    uint64_t offset = 0;
    if (pt_blk_get_offset(decoder->libipt, &offset) < 0)
        offset = decoder->sync;
    return offset;
}

void ptd_flow_settle(struct ptd_decoder *decoder)
{
    uint64_t offset = ptd_flow_offset(decoder);
    if (offset != decoder->behind) {
        decoder->before = decoder->behind;
        decoder->used = false;
    }
    decoder->behind = offset;
    if (decoder->behind < decoder->slice.size) /* at the end libipt counts half a packet as read */
        decoder->boundary = decoder->behind;
}

void ptd_flow_note_time(struct ptd_decoder *decoder, struct ptd_rows *rows)
{
    uint64_t tsc;
    uint32_t lost_mtc, lost_cyc;
    if (decoder->paced || pt_blk_time(decoder->libipt, &tsc, &lost_mtc, &lost_cyc) < 0 || tsc == decoder->progress.tsc)
        return;
    decoder->progress.tsc = tsc;
    ptd_rows_clock(rows, decoder->progress.seq + decoder->run.length, tsc);
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

void ptd_flow_end(struct ptd_decoder *decoder, struct ptd_rows *rows)
{
    bool on = !(decoder->status & pts_ip_suppressed);
    if (decoder->slice.has_stop && on) {
        decoder->state = PTD_FLOW_STOPPING;
        decoder->without_packet = 0;
        return;
    }
    if (decoder->slice.has_stop && !decoder->overflowed)
        ptd_flow_contradiction(decoder, rows, PTD_WHY_STOP_WHILE_OFF);
    if (!on)
        note_off(decoder);
    ptd_flow_finish(decoder, rows);
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
            ptd_flow_forget_tail(decoder);
            return status;
        }
        if (block.ninsn) {
            *ip = block.end_ip;
            bool whole = status < 0 || status & pts_event_pending;
            int full = whole || decoder->held.ninsn || decoder->paced ? -1 : ptd_flow_append_known(decoder, &block);
            if (full < 0)
                full = ptd_flow_take_block(decoder, rows, &block, whole);
            if (status == -pte_nomap && full >= 0)
                *ip = ptd_flow_end_of(decoder, decoder->last);
            if (full >= 0 && decoder->paced) {
                int error_of_turn = ptd_flow_follow(decoder, rows);
                full = error_of_turn < 0 ? error_of_turn : full;
            }
            if (full > 0) {
                full = ptd_flow_cut(decoder, rows);
                ptd_flow_note_time(decoder, rows);
                if (status >= 0)
                    ptd_flow_settle(decoder);
            }
            if (full >= 0 && !decoder->run.length && !ptd_rows_have_room(rows))
                return status;
            if (full < 0) {
                *error = full;
                return 0;
            }
        } else {
            decoder->without_packet++;
        }
        if (status < 0 || decoder->without_packet > PTD_FLOW_BLOCKS_WITHOUT_PACKET)
            return status;
    }
    return status;
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
        status = ptd_flow_take_events(decoder, rows, status, &error);
        if (error == 0 && status < 0)
            error = ptd_flow_close_run(decoder, rows);
        if (error < 0)
            return error;
    } else if (status & pts_eos) {
        ptd_flow_end(decoder, rows);
        return 0;
    } else {
        status = run_blocks(decoder, rows, status, &ip, &error);
        if (error < 0)
            return error;
        bool circles = decoder->without_packet > PTD_FLOW_BLOCKS_WITHOUT_PACKET;
        if (leads_on(decoder, status)) {
            ptd_flow_note_time(decoder, rows);
            ptd_flow_settle(decoder);
        } else if (status < 0 || circles || status & (pts_event_pending | pts_eos)) {
            bool event_is_in_it = decoder->paced && status >= 0 && !circles && status & pts_event_pending;
            error = event_is_in_it ? 0 : ptd_flow_settle_turns(decoder, rows);
            if (error == 0 && !event_is_in_it)
                error = ptd_flow_close_run(decoder, rows);
            ptd_flow_note_time(decoder, rows);
            if (status >= 0)
                ptd_flow_settle(decoder);
        }
        if (status >= 0 && circles) {
            ptd_flow_fail(decoder, rows, PTD_WHY_NO_PROGRESS, ip);
            return error;
        }
        if (error == 0 && status == -pte_bad_query && !ptd_flow_disabled_by_branch(decoder, rows, &status, &error))
            status = -pte_bad_query;
    }
    decoder->status = status;
    if (status < 0)
        ptd_flow_fail(decoder, rows, -status, ip);
    return error;
}

int ptd_decoder_step(struct ptd_decoder *decoder, struct ptd_rows *rows)
{
    decoder->rows = rows;
    while (decoder->state != PTD_FLOW_DONE && ptd_rows_have_room(rows)) {
        if (decoder->state == PTD_FLOW_SYNCHRONISING) {
            ptd_flow_synchronise(decoder, rows);
            continue;
        }
        int error = decoder->state == PTD_FLOW_STOPPING ? ptd_flow_stop(decoder, rows) : run(decoder, rows);
        if (error < 0)
            return error;
    }
    decoder->progress.offset = decoder->state == PTD_FLOW_DONE ? decoder->slice.size : ptd_flow_offset(decoder);
    return decoder->state != PTD_FLOW_DONE;
}

void ptd_decoder_progress(const struct ptd_decoder *decoder, struct ptd_progress *ret)
{
    *ret = decoder->progress;
}

static int configure(struct ptd_decoder *decoder, const struct ptd_cpu *cpu)
{
    const struct ptd_slice *slice = &decoder->slice;
    struct pt_config config;
    int error = ptd_config_init(&config, cpu, decoder->slice.packets, decoder->slice.size);
    if (error < 0)
        return error;
    decoder->libipt = pt_blk_alloc_decoder(&config);
    if (!decoder->libipt)
        return -ENOMEM;
    decoder->of_host = cpu->exact_time;
    decoder->paced = cpu->exact_time || decoder->slice.switch_count;
    if (decoder->paced && ptd_pace_init(&decoder->pace, cpu, &decoder->slice) < 0)
        return -ENOMEM;
    ptd_handover_init(&decoder->handover, slice);
    if (decoder->slice.switch_count) /* the first moment is one of whoever ran then */
        decoder->pace.due = 0;
    return 0;
}

int ptd_decoder_create(struct ptd_tables *tables, struct ptd_space *space, const struct ptd_cpu *cpu,
                       const struct ptd_slice *slice, struct ptd_decoder **ret)
{
    struct ptd_decoder *decoder = calloc(1, sizeof *decoder);
    if (!decoder)
        return -ENOMEM;
    decoder->tables = tables;
    decoder->slice = *slice;
    decoder->progress = (struct ptd_progress){.seq = slice->seq, .tsc = slice->tsc, .first_block = -1};
    decoder->last = -1;
    ptd_flow_open_gap(decoder, PTD_GAP_TRUNCATED, PTD_WHY_NO_PSB_YET, 0, 0);
    int error = slice->size ? configure(decoder, cpu) : -EINVAL;
    if (error == 0)
        error = ptd_flow_enter(decoder, space);
    if (error == 0)
        error = ptd_joins_init(&decoder->joins);
    if (error == 0)
        ptd_joins_begin(&decoder->joins, slice->seq);
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
    ptd_joins_deinit(&decoder->joins);
    if (decoder->timed)
        ptd_space_leave(decoder->timed);
    if (decoder->space)
        ptd_space_leave(decoder->space);
    free(decoder);
}

void ptd_decoder_timing(struct ptd_decoder *decoder, struct ptd_timing *ret)
{
    *ret = (struct ptd_timing){0};
    if (decoder->paced)
        ptd_pace_end(&decoder->pace, ret);
    ret->handover = decoder->handover;
}
