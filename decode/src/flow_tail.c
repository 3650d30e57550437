/* SPDX-License-Identifier: MIT */
/* The end of a slice: execution goes on without packets, to where the next one begins. */
#include "flow.h"

#include <errno.h>

/* Cut `block` before the instruction at `ip`: false when none of its instructions is there. */
static bool cut_block(struct ptd_decoder *decoder, struct pt_block *block, uint64_t ip)
{
    uint8_t lengths[UINT16_MAX];
    if (!block->ninsn || ip < block->ip || ip > block->end_ip)
        return false;
    uint32_t count = ptd_flow_lengths_of(decoder, block, lengths);
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
    int full = block->ninsn ? ptd_flow_take_block(decoder, rows, block, whole) : 0;
    if (full >= 0 && block->ninsn && whole && decoder->run.length)
        *ip = ptd_flow_end_of(decoder, decoder->last);
    decoder->without_packet = blocks; /* whatever they end in, they use no packets */
    return full > 0 ? ptd_flow_cut(decoder, rows) : full;
}

int ptd_flow_stop(struct ptd_decoder *decoder, struct ptd_rows *rows)
{
    int status = decoder->status, error = 0;
    uint64_t ip = 0;
    bool there = false;
    while (status >= 0 && !there && error == 0 && decoder->without_packet <= PTD_FLOW_BLOCKS_WITHOUT_PACKET) {
        if (!ptd_rows_have_room(rows))
            return 0;
        struct pt_block block;
        status = pt_blk_next(decoder->libipt, &block, sizeof block);
        ip = block.ip;
        there = cut_block(decoder, &block, decoder->slice.stop_ip);
        error = add_to_tail(decoder, rows, &block, there || status < 0, &ip);
    }
    if (error == 0 && there && decoder->slice.is_lead)
        ptd_flow_come_to(decoder, decoder->slice.stop_ip);
    if (error == 0 && there && decoder->paced) {
        ptd_pace_stop(&decoder->pace, rows);
        error = ptd_flow_follow(decoder, rows);
    }
    if (error == 0)
        error = ptd_flow_close_run(decoder, rows);
    if (error < 0)
        return error;
    if (there) {
        ptd_flow_finish(decoder, rows);
    } else if (status >= 0 || status == -pte_eos) {
        ptd_flow_contradiction(decoder, rows, PTD_WHY_STOP_MISSED);
        ptd_flow_finish(decoder, rows);
    } else {
        ptd_flow_fail(decoder, rows, -status, ip);
    }
    return 0;
}
