/* SPDX-License-Identifier: MIT */
/*
 * Where decoding begins, and where it goes on after an error: at the next PSB, or one that libipt has read already.
 * Works on the decoder it is handed.
 */
#include "flow.h"
#include "psb.h"

/* Timing packets may lie between a PSB and the next packet of flow; beyond this many bytes we do not look. */
enum { MAX_READ_AHEAD = 1 << 16 };

/* No PSB is left: the rest of the slice is lost. */
static void give_up(struct ptd_decoder *decoder, struct ptd_rows *rows)
{
    if (decoder->gap.open && decoder->gap.row.reason == PTD_WHY_NO_PSB_YET)
        decoder->gap.row.reason = PTD_WHY_NO_PSB;
    if (decoder->gap.open && decoder->gap.row.reason == PTD_WHY_NO_PSB &&
        ptd_flow_all_padding(decoder->slice.packets, decoder->slice.size))
        decoder->gap.open = false;
    ptd_flow_close_gap(decoder, rows, decoder->slice.size);
    decoder->state = PTD_FLOW_DONE;
}

/* Whether the PSB+ at `psb` is complete: when libipt is at the end nevertheless, nothing that happened is behind it. */
static bool only_psb(const struct ptd_decoder *decoder, uint64_t psb)
{
    uint64_t ip;
    return ptd_psb_ip(decoder->slice.packets, decoder->slice.size, psb, &ip) >= 0;
}

void ptd_flow_synchronise(struct ptd_decoder *decoder, struct ptd_rows *rows)
{
    uint64_t before = decoder->sync, sync = 0;
    if (decoder->guest) { /* the PSB+ says so if it is one still */
        decoder->guest = false;
        (void)ptd_flow_use_code(decoder);
    }
    bool first = decoder->gap.open && decoder->gap.row.reason == PTD_WHY_NO_PSB_YET;
    int status = decoder->ahead ? pt_blk_sync_set(decoder->libipt, decoder->ahead)
                                : pt_blk_sync_forward(decoder->libipt);
    decoder->ahead = 0;
    int known = pt_blk_get_sync_offset(decoder->libipt, &sync);
    if (status == -pte_eos && known >= 0 && (first || sync > before) && only_psb(decoder, sync)) {
        decoder->sync = decoder->boundary = decoder->behind = sync;
        if (first && ptd_flow_all_padding(decoder->slice.packets, sync))
            decoder->gap.open = false;
        ptd_flow_close_gap(decoder, rows, sync);
        decoder->status = pts_eos | pts_ip_suppressed;
        ptd_flow_end(decoder, rows);
        return;
    }
    if (status == -pte_eos || known < 0 || (!first && sync <= before)) {
        if (!decoder->gap.open)
            ptd_flow_open_gap(decoder, PTD_GAP_TRUNCATED, PTD_WHY_CUT_PACKET, before, 0);
        give_up(decoder, rows);
        return;
    }
    /* libipt had read all of the segment before it found the error: some packet of it was at fault */
    if (decoder->gap.open && decoder->gap.row.kind == PTD_GAP_DECODE_ERROR && decoder->gap.row.offset >= sync)
        decoder->gap.row.offset = ptd_last_move(decoder->slice.packets, decoder->slice.size, before, sync);
    decoder->sync = decoder->boundary = decoder->before = decoder->behind = sync;
    if (first && ptd_flow_all_padding(decoder->slice.packets, sync))
        decoder->gap.open = false;
    ptd_flow_close_gap(decoder, rows, sync);
    if (status < 0) {
        ptd_flow_open_gap(decoder, PTD_GAP_DECODE_ERROR, -status, sync, 0);
        return;
    }
    decoder->status = status;
    decoder->without_packet = 0;
    decoder->state = PTD_FLOW_RUNNING;
    ptd_flow_settle(decoder);
    ptd_flow_note_time(decoder, rows);
    if (decoder->paced) {
        ptd_pace_sync(&decoder->pace, rows, sync, decoder->progress.seq);
        if (ptd_flow_follow(decoder, rows) < 0)
            ptd_flow_open_gap(decoder, PTD_GAP_DECODE_ERROR, pte_bad_image, sync, 0);
    }
}

/*
 * libipt reads packets ahead of what it decodes: a PSB among them, nothing of whose segment was executed yet, is the
 * best place to go on after an error; synchronising forward would miss it. 0: there is none.
 */
static uint64_t psb_ahead(const struct ptd_decoder *decoder)
{
    const struct ptd_slice *slice = &decoder->slice;
    uint64_t end = ptd_flow_offset(decoder), floor = decoder->sync + 1;
    if (floor < decoder->psb_taken)
        floor = decoder->psb_taken;
    if (end > MAX_READ_AHEAD && floor < end - MAX_READ_AHEAD)
        floor = end - MAX_READ_AHEAD;
    uint64_t psb = ptd_psb_before(slice->packets, floor, end);
    return psb != UINT64_MAX && ptd_psb_only(slice->packets, slice->size, psb, end) ? psb : 0;
}

void ptd_flow_fail(struct ptd_decoder *decoder, struct ptd_rows *rows, int reason, uint64_t ip)
{
    if (reason == pte_eos) {
        ptd_flow_finish(decoder, rows);
        return;
    }
    enum ptd_gap kind = reason == pte_nomap ? PTD_GAP_MISSING_IMAGE : PTD_GAP_DECODE_ERROR;
    if (reason == pte_nomap && decoder->guest && decoder->of_host)
        reason = PTD_WHY_GUEST;
    (void)ptd_flow_lose_turns(decoder, rows, UINT64_MAX); /* up to the next PSB, wherever that leads */
    decoder->ahead = psb_ahead(decoder);
    uint64_t lost = ptd_waiting(decoder->slice.packets, decoder->slice.size, decoder->before, decoder->behind);
    if (reason == pte_bad_context && !decoder->used) { /* the last packet read has no place there */
        uint64_t misplaced =
            ptd_last_move(decoder->slice.packets, decoder->slice.size, decoder->before, decoder->behind);
        lost = misplaced < lost ? misplaced : lost;
    }
    if (decoder->ahead && decoder->ahead < lost)
        lost = decoder->ahead;
    ptd_flow_open_gap(decoder, kind, reason, lost, ip);
}
