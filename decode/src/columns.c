/* SPDX-License-Identifier: MIT */
/*
 * Batches of rows in Arrow's memory layout.
 *
 * A batch is made, filled by one decoder and handed to Python, which wraps its arrays without copying them and
 * destroys it when the last array is gone. Not thread-safe: one owner at a time.
 */
#include "columns.h"

#include <stdlib.h>
#include <string.h>

/* A slice of flow has far fewer events than paths; a batch ends when any of its columns is full. */
enum { EVENTS_PER_FLOW = 4, GAPS_PER_FLOW = 16, PIECES_PER_FLOW = 64 };

static size_t at_least(size_t rows, size_t minimum)
{
    return rows < minimum ? minimum : rows;
}

static int rows_init(struct ptd_rows *rows, size_t flow)
{
    rows->flow_capacity = at_least(flow, 64);
    rows->clock_capacity = at_least(flow, 64) + PTD_CLOCK_SLACK;
    rows->event_capacity = at_least(flow / EVENTS_PER_FLOW, 64);
    rows->gap_capacity = at_least(flow / GAPS_PER_FLOW, 64);
    rows->piece_capacity = at_least(flow / PIECES_PER_FLOW, 64) + PTD_CLOCK_SLACK;

    rows->flow_path = calloc(rows->flow_capacity, sizeof *rows->flow_path);
    rows->clock_seq = calloc(rows->clock_capacity, sizeof *rows->clock_seq);
    rows->clock_tsc = calloc(rows->clock_capacity, sizeof *rows->clock_tsc);
    rows->clock_before = calloc(rows->clock_capacity, sizeof *rows->clock_before);

    size_t events = rows->event_capacity;
    rows->event_seq = calloc(events, sizeof *rows->event_seq);
    rows->event_tsc = calloc(events, sizeof *rows->event_tsc);
    rows->event_kind = calloc(events, sizeof *rows->event_kind);
    rows->event_ip = calloc(events, sizeof *rows->event_ip);
    rows->event_target = calloc(events, sizeof *rows->event_target);
    rows->event_offset = calloc(events, sizeof *rows->event_offset);
    rows->event_detail = calloc(events, sizeof *rows->event_detail);
    rows->event_size = calloc(events, sizeof *rows->event_size);
    rows->event_update = calloc(events, sizeof *rows->event_update);
    rows->event_lost_mtc = calloc(events, sizeof *rows->event_lost_mtc);
    rows->event_lost_cyc = calloc(events, sizeof *rows->event_lost_cyc);
    rows->valid_event_ip = calloc(events / 8 + 1, 1);
    rows->valid_event_target = calloc(events / 8 + 1, 1);
    rows->valid_event_detail = calloc(events / 8 + 1, 1);
    rows->valid_event_size = calloc(events / 8 + 1, 1);

    size_t gaps = rows->gap_capacity;
    rows->gap_seq = calloc(gaps, sizeof *rows->gap_seq);
    rows->gap_tsc = calloc(gaps, sizeof *rows->gap_tsc);
    rows->gap_kind = calloc(gaps, sizeof *rows->gap_kind);
    rows->gap_bytes = calloc(gaps, sizeof *rows->gap_bytes);
    rows->gap_offset = calloc(gaps, sizeof *rows->gap_offset);
    rows->gap_ip = calloc(gaps, sizeof *rows->gap_ip);
    rows->valid_gap_ip = calloc(gaps / 8 + 1, 1);
    rows->gap_reason = calloc(gaps, sizeof *rows->gap_reason);

    size_t pieces = rows->piece_capacity;
    rows->piece_thread = calloc(pieces, sizeof *rows->piece_thread);
    rows->piece_tsc = calloc(pieces, sizeof *rows->piece_tsc);
    rows->piece_flow = calloc(pieces, sizeof *rows->piece_flow);
    rows->piece_clock = calloc(pieces, sizeof *rows->piece_clock);
    rows->piece_event = calloc(pieces, sizeof *rows->piece_event);
    rows->piece_gap = calloc(pieces, sizeof *rows->piece_gap);
    rows->piece_seq = calloc(pieces, sizeof *rows->piece_seq);
    rows->piece_instructions = calloc(pieces, sizeof *rows->piece_instructions);
    rows->piece_branches = calloc(pieces, sizeof *rows->piece_branches);

    return rows->flow_path && rows->clock_seq && rows->clock_tsc && rows->clock_before && rows->event_seq &&
           rows->event_tsc && rows->event_kind && rows->event_ip && rows->event_target && rows->event_offset &&
           rows->event_detail && rows->event_size && rows->event_update && rows->event_lost_mtc &&
           rows->event_lost_cyc && rows->valid_event_ip && rows->valid_event_target && rows->valid_event_detail &&
           rows->valid_event_size &&
           rows->gap_seq && rows->gap_tsc && rows->gap_kind && rows->gap_bytes && rows->gap_offset &&
           rows->gap_ip && rows->valid_gap_ip && rows->gap_reason && rows->piece_thread && rows->piece_tsc &&
           rows->piece_flow && rows->piece_clock && rows->piece_event && rows->piece_gap && rows->piece_seq &&
           rows->piece_instructions && rows->piece_branches;
}

static void rows_deinit(struct ptd_rows *rows)
{
    free(rows->flow_path);
    free(rows->clock_seq);
    free(rows->clock_tsc);
    free(rows->clock_before);
    free(rows->event_seq);
    free(rows->event_tsc);
    free(rows->event_kind);
    free(rows->event_ip);
    free(rows->event_target);
    free(rows->event_offset);
    free(rows->event_detail);
    free(rows->event_size);
    free(rows->event_update);
    free(rows->event_lost_mtc);
    free(rows->event_lost_cyc);
    free(rows->valid_event_ip);
    free(rows->valid_event_target);
    free(rows->valid_event_detail);
    free(rows->valid_event_size);
    free(rows->gap_seq);
    free(rows->gap_tsc);
    free(rows->gap_kind);
    free(rows->gap_bytes);
    free(rows->gap_offset);
    free(rows->gap_ip);
    free(rows->valid_gap_ip);
    free(rows->gap_reason);
    free(rows->piece_thread);
    free(rows->piece_tsc);
    free(rows->piece_flow);
    free(rows->piece_clock);
    free(rows->piece_event);
    free(rows->piece_gap);
    free(rows->piece_seq);
    free(rows->piece_instructions);
    free(rows->piece_branches);
}

struct ptd_rows *ptd_rows_create(size_t flow)
{
    struct ptd_rows *rows = calloc(1, sizeof *rows);
    if (!rows)
        return NULL;
    if (!rows_init(rows, flow)) {
        ptd_rows_destroy(rows);
        return NULL;
    }
    return rows;
}

void ptd_rows_destroy(struct ptd_rows *rows)
{
    if (!rows)
        return;
    rows_deinit(rows);
    free(rows);
}

void ptd_rows_clear(struct ptd_rows *rows)
{
    memset(rows->valid_event_ip, 0, rows->event_count / 8 + 1);
    memset(rows->valid_event_target, 0, rows->event_count / 8 + 1);
    memset(rows->valid_event_detail, 0, rows->event_count / 8 + 1);
    memset(rows->valid_event_size, 0, rows->event_count / 8 + 1);
    memset(rows->valid_gap_ip, 0, rows->gap_count / 8 + 1);
    rows->flow_count = rows->clock_count = rows->event_count = rows->gap_count = rows->piece_count = 0;
}

/* The first row of the clock in the piece that is being filled. */
static size_t piece_begin(const struct ptd_rows *rows)
{
    return rows->piece_count ? (size_t)rows->piece_clock[rows->piece_count - 1] : 0;
}

void ptd_rows_clock(struct ptd_rows *rows, int64_t seq, uint64_t tsc)
{
    size_t n = rows->clock_count;
    /* Of many moments at one block only the first and the last say something about the blocks around it. */
    if (n >= piece_begin(rows) + 2 && rows->clock_seq[n - 1] == seq && rows->clock_seq[n - 2] == seq)
        n--;
    rows->clock_seq[n] = seq;
    rows->clock_tsc[n] = tsc;
    rows->clock_before[n] = 0;
    rows->clock_count = n + 1;
}

void ptd_rows_moment(struct ptd_rows *rows, int64_t seq, uint64_t tsc, int32_t before)
{
    size_t n = rows->clock_count, first = piece_begin(rows);
    if (n > first && rows->clock_seq[n - 1] == seq && rows->clock_before[n - 1] == before)
        n--; /* nothing was executed between the two */
    rows->clock_seq[n] = seq;
    rows->clock_tsc[n] = tsc;
    rows->clock_before[n] = before;
    rows->clock_count = n + 1;
}

void ptd_rows_take_moment(struct ptd_rows *rows, const struct ptd_rows *from, size_t row, bool final)
{
    if (!final) {
        ptd_rows_clock(rows, from->clock_seq[row], from->clock_tsc[row]);
        return;
    }
    size_t n = rows->clock_count++;
    rows->clock_seq[n] = from->clock_seq[row];
    rows->clock_tsc[n] = from->clock_tsc[row];
    rows->clock_before[n] = from->clock_before[row];
}

bool ptd_rows_unsay(struct ptd_rows *rows, int64_t seq)
{
    size_t n = rows->clock_count;
    if (n <= piece_begin(rows) || rows->clock_seq[n - 1] != seq || rows->clock_before[n - 1])
        return false;
    rows->clock_count--;
    return true;
}

void ptd_rows_event(struct ptd_rows *rows, const struct ptd_event_row *event)
{
    size_t n = rows->event_count++;
    rows->event_seq[n] = event->seq;
    rows->event_tsc[n] = event->tsc;
    rows->event_kind[n] = (int8_t)event->kind;
    rows->event_offset[n] = event->offset;
    rows->event_size[n] = event->size;
    rows->event_update[n] = event->update;
    rows->event_lost_mtc[n] = event->lost_mtc;
    rows->event_lost_cyc[n] = event->lost_cyc;
    if (event->size)
        ptd_set_valid(rows->valid_event_size, n);
    if (event->has_ip) {
        rows->event_ip[n] = event->ip;
        ptd_set_valid(rows->valid_event_ip, n);
    }
    if (event->has_target) {
        rows->event_target[n] = event->target;
        ptd_set_valid(rows->valid_event_target, n);
    }
    if (event->has_detail) {
        rows->event_detail[n] = event->detail;
        ptd_set_valid(rows->valid_event_detail, n);
    }
}

void ptd_rows_gap(struct ptd_rows *rows, const struct ptd_gap_row *gap)
{
    size_t n = rows->gap_count++;
    rows->gap_seq[n] = gap->seq;
    rows->gap_tsc[n] = gap->tsc;
    rows->gap_kind[n] = (int8_t)gap->kind;
    rows->gap_bytes[n] = gap->bytes;
    rows->gap_offset[n] = gap->offset;
    rows->gap_reason[n] = gap->reason;
    if (gap->has_ip) {
        rows->gap_ip[n] = gap->ip;
        ptd_set_valid(rows->valid_gap_ip, n);
    }
}

static bool is_valid(const uint8_t *bitmap, size_t row)
{
    return bitmap[row / 8] >> row % 8 & 1;
}

struct ptd_event_row ptd_rows_event_at(const struct ptd_rows *rows, size_t row)
{
    return (struct ptd_event_row){
        .seq = rows->event_seq[row],
        .tsc = rows->event_tsc[row],
        .kind = (enum ptd_event)rows->event_kind[row],
        .offset = rows->event_offset[row],
        .has_ip = is_valid(rows->valid_event_ip, row),
        .has_target = is_valid(rows->valid_event_target, row),
        .has_detail = is_valid(rows->valid_event_detail, row),
        .ip = rows->event_ip[row],
        .target = rows->event_target[row],
        .detail = rows->event_detail[row],
        .size = rows->event_size[row],
        .update = rows->event_update[row],
        .lost_mtc = rows->event_lost_mtc[row],
        .lost_cyc = rows->event_lost_cyc[row],
    };
}

struct ptd_gap_row ptd_rows_gap_at(const struct ptd_rows *rows, size_t row)
{
    return (struct ptd_gap_row){
        .seq = rows->gap_seq[row],
        .tsc = rows->gap_tsc[row],
        .kind = (enum ptd_gap)rows->gap_kind[row],
        .bytes = rows->gap_bytes[row],
        .offset = rows->gap_offset[row],
        .has_ip = is_valid(rows->valid_gap_ip, row),
        .ip = rows->gap_ip[row],
        .reason = rows->gap_reason[row],
    };
}

void ptd_rows_piece(struct ptd_rows *rows, int32_t thread, uint64_t tsc, const struct ptd_progress *progress)
{
    size_t n = rows->piece_count++;
    rows->piece_thread[n] = thread;
    rows->piece_tsc[n] = tsc;
    rows->piece_flow[n] = (int64_t)rows->flow_count;
    rows->piece_clock[n] = (int64_t)rows->clock_count;
    rows->piece_event[n] = (int64_t)rows->event_count;
    rows->piece_gap[n] = (int64_t)rows->gap_count;
    rows->piece_seq[n] = progress->seq;
    rows->piece_instructions[n] = progress->instructions;
    rows->piece_branches[n] = progress->branches;
}

void ptd_to_ns(const uint64_t *tsc, size_t count, uint64_t tsc0, int64_t t0, uint64_t span_tsc, int64_t span_ns,
               int64_t *ret)
{
    for (size_t i = 0; i < count; i++) {
        if (!span_tsc) {
            ret[i] = t0;
            continue;
        }
        __int128 product = ((__int128)tsc[i] - tsc0) * span_ns;
        __int128 quotient = product / span_tsc;
        if (product % span_tsc < 0) /* C rounds towards zero, time is floored */
            quotient--;
        ret[i] = (int64_t)((uint64_t)t0 + (uint64_t)quotient);
    }
}
