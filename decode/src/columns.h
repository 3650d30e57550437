/* SPDX-License-Identifier: MIT */
/* Rows of one batch, appended one by one; the caller has seen to it that there is room (ptd_rows_have_room). */
#ifndef PTD_COLUMNS_H
#define PTD_COLUMNS_H

#include "api.h"

#include <stdbool.h>

struct ptd_event_row {
    int64_t seq;
    uint64_t tsc;
    enum ptd_event kind;
    uint64_t offset;
    bool has_ip, has_target, has_detail;
    uint64_t ip, target;
    int64_t detail;
    int8_t size; /* bytes of the payload, 0: it has no size of its own */
    bool update; /* from a PSB+: how things stand, not something that happened */
    uint32_t lost_mtc, lost_cyc;
};

struct ptd_gap_row {
    int64_t seq;
    uint64_t tsc;
    enum ptd_gap kind;
    int64_t bytes;
    uint64_t offset;
    bool has_ip;
    uint64_t ip;
    int32_t reason;
};

/* The rows one turn of the decode loop can add to any column between two looks at the room. */
enum { PTD_ROWS_SLACK = 8 };

/* Moments and pieces a path and the events around it can add: one or two for each of its decisions. */
enum { PTD_CLOCK_SLACK = 8192 + 64 };

static inline bool ptd_rows_have_room(const struct ptd_rows *rows)
{
    return rows->flow_count + PTD_ROWS_SLACK <= rows->flow_capacity &&
           rows->clock_count + PTD_CLOCK_SLACK <= rows->clock_capacity &&
           rows->event_count + PTD_ROWS_SLACK <= rows->event_capacity &&
           rows->gap_count + PTD_ROWS_SLACK <= rows->gap_capacity &&
           rows->piece_count + PTD_CLOCK_SLACK <= rows->piece_capacity;
}

static inline void ptd_set_valid(uint8_t *bitmap, size_t row)
{
    bitmap[row / 8] |= (uint8_t)(1u << row % 8);
}

static inline void ptd_rows_flow(struct ptd_rows *rows, int32_t path)
{
    rows->flow_path[rows->flow_count++] = path;
}

void ptd_rows_clock(struct ptd_rows *rows, int64_t seq, uint64_t tsc);

/* A moment; already of the `before` last instructions before block `seq`. */
void ptd_rows_moment(struct ptd_rows *rows, int64_t seq, uint64_t tsc, int32_t before);

/* The moment that is row `row` of `from` as the next one; `final`: pace.c said it, nothing is left out any more. */
void ptd_rows_take_moment(struct ptd_rows *rows, const struct ptd_rows *from, size_t row, bool final);

/* Take the last moment back if it is only of what comes at `seq`; true when it was. */
bool ptd_rows_unsay(struct ptd_rows *rows, int64_t seq);
void ptd_rows_event(struct ptd_rows *rows, const struct ptd_event_row *event);
void ptd_rows_gap(struct ptd_rows *rows, const struct ptd_gap_row *gap);

/* A row that was appended. */
struct ptd_event_row ptd_rows_event_at(const struct ptd_rows *rows, size_t row);
struct ptd_gap_row ptd_rows_gap_at(const struct ptd_rows *rows, size_t row);

/*
 * A piece begins: what is appended from now on is `thread`'s, from `tsc` on. No run of blocks may be open (cut it
 * first); `progress` says what was counted up to now.
 */
void ptd_rows_piece(struct ptd_rows *rows, int32_t thread, uint64_t tsc, const struct ptd_progress *progress);

#endif
