/* SPDX-License-Identifier: MIT */
/* Gaps, counted to the byte: bytes of a slice = bytes decoded + bytes in gaps. Works on the decoder it is handed. */
#include "flow.h"
#include "psb.h"

void ptd_flow_open_gap(struct ptd_decoder *decoder, enum ptd_gap kind, int32_t reason, uint64_t offset, uint64_t ip)
{
    decoder->state = PTD_FLOW_SYNCHRONISING;
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

void ptd_flow_close_gap(struct ptd_decoder *decoder, struct ptd_rows *rows, uint64_t offset)
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

bool ptd_flow_all_padding(const uint8_t *packets, uint64_t size)
{
    for (uint64_t i = 0; i < size; i++)
        if (packets[i])
            return false;
    return true;
}

void ptd_flow_finish(struct ptd_decoder *decoder, struct ptd_rows *rows)
{
    const struct ptd_slice *slice = &decoder->slice;
    uint64_t offset = ptd_packets_end(slice->packets, slice->size, decoder->boundary);
    if (offset < slice->size) {
        ptd_flow_open_gap(decoder, PTD_GAP_TRUNCATED, PTD_WHY_CUT_PACKET, offset, 0);
        ptd_flow_close_gap(decoder, rows, slice->size);
    }
    decoder->state = PTD_FLOW_DONE;
}

void ptd_flow_contradiction(struct ptd_decoder *decoder, struct ptd_rows *rows, enum ptd_reason reason)
{
    ptd_flow_open_gap(decoder, PTD_GAP_DECODE_ERROR, (int32_t)reason, decoder->slice.size, decoder->slice.stop_ip);
    ptd_flow_close_gap(decoder, rows, decoder->slice.size);
}
