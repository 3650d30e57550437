/* SPDX-License-Identifier: MIT */
/* Rows waiting to be known as good. Owns its memory, at most 4 bytes a row of flow; not thread-safe. */
#include "cached_buffer.h"
#include "grow.h"

#include <string.h>

enum { FIRST_ROWS = 4096 };

int ptd_buffer_init(struct ptd_buffer *buffer)
{
    memset(buffer, 0, sizeof *buffer);
    return ptd_buffer_grow_flow(buffer);
}

void ptd_buffer_deinit(struct ptd_buffer *buffer)
{
    free(buffer->flow_path);
    free(buffer->moments.clock_seq);
    free(buffer->moments.clock_tsc);
    free(buffer->moments.clock_before);
    free(buffer->events);
}

int ptd_buffer_grow_flow(struct ptd_buffer *buffer)
{
    size_t capacity = buffer->capacity.flow ? 2 * buffer->capacity.flow : FIRST_ROWS;
    if (capacity > PTD_BUFFER_ROWS)
        return -E2BIG;
    if (ptd_grow(&buffer->flow_path, capacity, sizeof *buffer->flow_path) < 0)
        return -ENOMEM;
    buffer->capacity.flow = capacity;
    return 0;
}

static int make_room(void *column, size_t width, size_t filled, size_t *capacity)
{
    if (filled < *capacity)
        return 0;
    size_t larger = *capacity ? 2 * *capacity : FIRST_ROWS / 16;
    if (larger > PTD_BUFFER_ROWS)
        return -E2BIG;
    int error = ptd_grow(column, larger, width);
    if (error == 0)
        *capacity = larger;
    return error;
}

static int grow_clock(struct ptd_buffer *buffer, size_t more)
{
    struct ptd_rows *moments = &buffer->moments;
    size_t capacity = buffer->capacity.clock ? 2 * buffer->capacity.clock : FIRST_ROWS / 16;
    while (capacity < moments->clock_count + more)
        capacity *= 2;
    if (capacity > PTD_BUFFER_ROWS)
        return -E2BIG;
    if (ptd_grow(&moments->clock_seq, capacity, sizeof *moments->clock_seq) < 0 ||
        ptd_grow(&moments->clock_tsc, capacity, sizeof *moments->clock_tsc) < 0 ||
        ptd_grow(&moments->clock_before, capacity, sizeof *moments->clock_before) < 0)
        return -ENOMEM;
    moments->clock_capacity = buffer->capacity.clock = capacity;
    return 0;
}

int ptd_buffer_clock(struct ptd_buffer *buffer, int64_t seq, uint64_t tsc)
{
    struct ptd_rows *moments = &buffer->moments;
    int error = moments->clock_count == moments->clock_capacity ? grow_clock(buffer, 1) : 0;
    if (error < 0)
        return error;
    moments->clock_seq[moments->clock_count] = seq;
    moments->clock_tsc[moments->clock_count] = tsc;
    moments->clock_before[moments->clock_count++] = 0;
    ptd_buffer_timed(buffer);
    return 0;
}

struct ptd_rows *ptd_buffer_moments(struct ptd_buffer *buffer)
{
    bool room = buffer->moments.clock_capacity - buffer->moments.clock_count >= PTD_CLOCK_SLACK;
    return room || grow_clock(buffer, PTD_CLOCK_SLACK) == 0 ? &buffer->moments : NULL;
}

int ptd_buffer_event(struct ptd_buffer *buffer, const struct ptd_event_row *row)
{
    int error = make_room(&buffer->events, sizeof *buffer->events, buffer->filled.events, &buffer->capacity.events);
    if (error == 0)
        buffer->events[buffer->filled.events++] = *row;
    return error;
}

static void take_flow(struct ptd_buffer *buffer, struct ptd_rows *rows)
{
    size_t from = buffer->taken.flow, count = buffer->good.flow - from;
    if (count > rows->flow_capacity - rows->flow_count)
        count = rows->flow_capacity - rows->flow_count;
    memcpy(rows->flow_path + rows->flow_count, buffer->flow_path + from, count * sizeof *rows->flow_path);
    rows->flow_count += count;
    buffer->taken.flow += count;
}

bool ptd_buffer_take(struct ptd_buffer *buffer, struct ptd_rows *rows)
{
    take_flow(buffer, rows);
    for (; buffer->taken.clock < buffer->good.clock && rows->clock_count < rows->clock_capacity; buffer->taken.clock++)
        ptd_rows_take_moment(rows, &buffer->moments, buffer->taken.clock, buffer->paced);
    for (; buffer->taken.events < buffer->good.events && rows->event_count < rows->event_capacity;
         buffer->taken.events++)
        ptd_rows_event(rows, &buffer->events[buffer->taken.events]);
    return buffer->taken.flow == buffer->good.flow && buffer->taken.clock == buffer->good.clock &&
           buffer->taken.events == buffer->good.events;
}

static void to_front(void *column, size_t width, size_t from, size_t to)
{
    if (from && column)
        memmove(column, (char *)column + from * width, (to - from) * width);
}

void ptd_buffer_compact(struct ptd_buffer *buffer)
{
    struct ptd_filled from = buffer->taken, to = buffer->filled;
    to_front(buffer->flow_path, sizeof *buffer->flow_path, from.flow, to.flow);
    to_front(buffer->moments.clock_seq, sizeof *buffer->moments.clock_seq, from.clock, to.clock);
    to_front(buffer->moments.clock_tsc, sizeof *buffer->moments.clock_tsc, from.clock, to.clock);
    to_front(buffer->moments.clock_before, sizeof *buffer->moments.clock_before, from.clock, to.clock);
    buffer->moments.clock_count = to.clock - from.clock;
    to_front(buffer->events, sizeof *buffer->events, from.events, to.events);
    buffer->filled = (struct ptd_filled){to.flow - from.flow, to.clock - from.clock, to.events - from.events};
    buffer->good = buffer->taken = (struct ptd_filled){0};
}
