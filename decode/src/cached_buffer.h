/* SPDX-License-Identifier: MIT */
/*
 * Rows of a PSB segment that is not known to be good yet: they are kept here until it is, or dropped.
 */
#ifndef PTD_CACHED_BUFFER_H
#define PTD_CACHED_BUFFER_H

#include "api.h"
#include "columns.h"

enum {
    PTD_BUFFER_ROWS = 1 << 22 /* a segment of more rows of flow is left to libipt, whose rows need no keeping */
};

/* How far the columns are filled. */
struct ptd_filled {
    size_t flow, clock, events;
};

struct ptd_buffer {
    int32_t *flow_path;
    struct ptd_rows moments; /* the clock's columns only; counted below */
    bool paced;              /* they are written by pace.c, and final */
    struct ptd_event_row *events;
    struct ptd_filled filled;   /* rows that are there */
    struct ptd_filled good;     /* rows that will not be dropped any more */
    struct ptd_filled taken;    /* rows that were copied out */
    struct ptd_filled capacity;
};

/* Returns 0 or -ENOMEM; deinit also takes an object whose init failed. */
int ptd_buffer_init(struct ptd_buffer *buffer);
void ptd_buffer_deinit(struct ptd_buffer *buffer);

/* Room for one row more. Returns 0 or -ENOMEM; -E2BIG for flow beyond PTD_BUFFER_ROWS. */
int ptd_buffer_grow_flow(struct ptd_buffer *buffer);
int ptd_buffer_clock(struct ptd_buffer *buffer, int64_t seq, uint64_t tsc);

/* Moments to be written by pace.c, with room for PTD_CLOCK_SLACK more; NULL when there is none. */
struct ptd_rows *ptd_buffer_moments(struct ptd_buffer *buffer);

/* They were written. */
static inline void ptd_buffer_timed(struct ptd_buffer *buffer)
{
    buffer->filled.clock = buffer->moments.clock_count;
}
int ptd_buffer_event(struct ptd_buffer *buffer, const struct ptd_event_row *row);

static inline int ptd_buffer_flow(struct ptd_buffer *buffer, int32_t path)
{
    if (buffer->filled.flow == buffer->capacity.flow) {
        int error = ptd_buffer_grow_flow(buffer);
        if (error < 0)
            return error;
    }
    buffer->flow_path[buffer->filled.flow++] = path;
    return 0;
}

/* Copy good rows out while there is room for them. True: all of them are out. */
bool ptd_buffer_take(struct ptd_buffer *buffer, struct ptd_rows *rows);

/* Move the rows that are not good yet to the front, when all that are good are out. */
void ptd_buffer_compact(struct ptd_buffer *buffer);

#endif
