/* SPDX-License-Identifier: MIT */
/* Events become rows, and what code libipt is given. Works on the decoder it is handed. */
#include "events.h"
#include "flow.h"
#include "images.h"
#include "stand_ins.h"

#include <errno.h>
#include <string.h>

int ptd_flow_use_code(struct ptd_decoder *decoder)
{
    /* without an image of ours libipt has its own, in which there is nothing */
    struct pt_image *image = decoder->guest && decoder->of_host ? NULL : ptd_space_image(decoder->space);
    if (pt_blk_set_image(decoder->libipt, image) < 0)
        return -EINVAL;
    uint32_t round = ptd_space_round(decoder->space);
    ptd_blocks_enter_round(&decoder->tables->blocks, round);
    if (decoder->round == round)
        return 0;
    decoder->round = round; /* what it remembers of runs has other isids */
    ptd_trail_deinit(&decoder->trail);
    return ptd_trail_init(&decoder->trail);
}

int ptd_flow_enter(struct ptd_decoder *decoder, struct ptd_space *space)
{
    struct ptd_space *left = decoder->space;
    int error = ptd_space_use(space);
    if (error < 0)
        return error;
    decoder->space = space;
    error = ptd_flow_use_code(decoder);
    if (left)
        ptd_space_leave(left);
    return error;
}

/* What the EXSTOP an event comes from stands for; NULL: for itself. Events come in the order of their packets. */
static const struct ptd_stand_in *stands_for(struct ptd_decoder *decoder, const struct pt_event *event)
{
    const struct ptd_stand_ins *all = decoder->slice.stand_ins;
    if (event->type != ptev_exstop || !all)
        return NULL;
    while (decoder->stood < all->count && all->rows[decoder->stood].offset < decoder->sync)
        decoder->stood++;
    if (decoder->stood == all->count || all->rows[decoder->stood].offset >= ptd_flow_offset(decoder))
        return NULL;
    const struct ptd_stand_in *stood = &all->rows[decoder->stood++];
    return stood->kind == PTD_EV_EXSTOP ? NULL : stood;
}

/*
 * Execution stands at the PSB an event comes from: times are told by it from here on. libipt may have read the next one
 * already, whose address is another.
 */
static void pass_psb(struct ptd_decoder *decoder, struct ptd_rows *rows, const struct pt_event *event)
{
    const struct ptd_event_row row = ptd_event_row(event);
    const struct ptd_slice *slice = &decoder->slice;
    uint64_t psb = ptd_psb_after(slice->packets, ptd_flow_offset(decoder), decoder->pace.timer.offset), ip;
    if (row.has_ip && psb != UINT64_MAX && ptd_psb_ip(slice->packets, slice->size, psb, &ip) == 1 && ip == row.ip)
        ptd_pace_psb(&decoder->pace, rows, psb, decoder->progress.seq + decoder->run.length);
}

/* The run up to an event that times are told by: an event is at an instruction of it, and may be of another thread. */
static int close_run_by_time(struct ptd_decoder *decoder, struct ptd_rows *rows, const struct pt_event *event,
                             bool timeless)
{
    if (event->status_update && decoder->slice.switch_count > 1)
        pass_psb(decoder, rows, event);
    if (!timeless)
        ptd_pace_event(&decoder->pace, rows, event, decoder->progress.seq + decoder->run.length);
    int error = ptd_flow_follow(decoder, rows);
    return error < 0 ? error : ptd_flow_close_run(decoder, rows);
}

/* Returns 0 or negative errno. */
static int add_event(struct ptd_decoder *decoder, struct ptd_rows *rows, const struct pt_event *event)
{
    ptd_flow_settle(decoder);
    struct ptd_event_row row = ptd_event_row(event);
    const struct ptd_stand_in *stood = stands_for(decoder, event);
    if (stood) {
        row.kind = stood->kind;
        row.has_detail = true;
        row.detail = stood->detail;
    }
    if (decoder->paced) {
        int error = close_run_by_time(decoder, rows, event, stood && stood->timeless);
        if (error < 0)
            return error;
    } else if (event->has_tsc && event->tsc > decoder->progress.tsc) { /* else what we know was read ahead, and later */
        decoder->progress.tsc = event->tsc;
        ptd_rows_clock(rows, decoder->progress.seq, event->tsc);
    }
    row.seq = decoder->progress.seq;
    row.tsc = event->has_tsc && !decoder->paced ? event->tsc : decoder->progress.tsc;
    if (decoder->paced) /* libipt's estimate lacks them, not ours */
        row.lost_mtc = row.lost_cyc = 0;
    row.offset = decoder->slice.offset + decoder->behind;
    ptd_rows_event(rows, &row);
    decoder->overflowed = event->type == ptev_overflow;
    int error = ptd_flow_handover_event(decoder, rows, event);
    if (error < 0 || !decoder->overflowed)
        return error;
    struct ptd_gap_row gap = {
        .seq = row.seq, .tsc = row.tsc, .kind = PTD_GAP_OVERFLOW, .offset = row.offset,
        .has_ip = row.has_target, .ip = row.target, .reason = PTD_WHY_OVERFLOW,
    };
    ptd_rows_gap(rows, &gap);
    return 0;
}

/* A host's trace goes on in its guests, whose addresses mean other code: the PIP packet says where (SDM, NR bit). */
static int note_guest(struct ptd_decoder *decoder, const struct pt_event *event)
{
    bool guest = decoder->guest;
    if (event->type == ptev_paging)
        guest = event->variant.paging.non_root;
    else if (event->type == ptev_async_paging)
        guest = event->variant.async_paging.non_root;
    if (guest == decoder->guest)
        return 0;
    decoder->guest = guest;
    return ptd_flow_use_code(decoder);
}

/* Take the pending event. Returns libipt's status. */
static int take_event(struct ptd_decoder *decoder, struct pt_event *event)
{
    uint64_t before = ptd_flow_offset(decoder);
    memset(event, 0, sizeof *event);
    int status = pt_blk_event(decoder->libipt, event, sizeof *event);
    if (status >= 0 && event->status_update) /* it came with a PSB+, which is behind us now */
        decoder->psb_taken = before;
    if (status >= 0 && note_guest(decoder, event) < 0)
        return -pte_bad_image;
    return status;
}

int ptd_flow_take_events(struct ptd_decoder *decoder, struct ptd_rows *rows, int status, int *error)
{
    while (status >= 0 && *error == 0 && status & pts_event_pending && ptd_rows_have_room(rows)) {
        struct pt_event event;
        status = take_event(decoder, &event);
        if (status >= 0)
            *error = add_event(decoder, rows, &event);
    }
    decoder->without_packet = 0;
    return status;
}

bool ptd_flow_disabled_by_branch(struct ptd_decoder *decoder, struct ptd_rows *rows, int *status, int *error)
{
    struct pt_event event;
    *status = take_event(decoder, &event);
    if (*status < 0 || event.type != ptev_disabled || !event.ip_suppressed)
        return false;
    *error = add_event(decoder, rows, &event);
    return true;
}
