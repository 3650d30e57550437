/* SPDX-License-Identifier: MIT */
/* The decoder's events as text, a line each. Pure functions over the caller's arrays. */
#include "dump_text.h"

#include <errno.h>

static void put_maybe_address(struct dump_text *text, bool known, uint64_t address)
{
    if (known)
        put_address(text, address);
    else
        put(text, "               -");
}

static int put_event(const struct dump_events *events, size_t row, struct dump_text *text)
{
    int32_t kind = events->kind[row];
    if (kind < 0 || (size_t)kind >= events->name_count)
        return -ERANGE;
    put_decimal_right(text, events->seq[row], 12);
    put_char(text, ' ');
    put_seconds(text, events->valid_t[row], events->t[row]);
    put(text, "  ");
    put_address(text, events->offset[row]);
    put(text, "  ");
    size_t start = text->size;
    int64_t name = events->name_starts[kind];
    put_name(text, events->names + name, (size_t)(events->name_starts[kind + 1] - name));
    put_pad(text, start, 14);
    put(text, "  ");
    put_maybe_address(text, events->valid_ip[row], events->ip[row]);
    put(text, "  ");
    put_maybe_address(text, events->valid_target[row], events->target[row]);
    if (events->valid_detail[row]) {
        put(text, "  0x");
        put_hex(text, (uint64_t)events->detail[row], 1);
    }
    put_char(text, '\n');
    return 0;
}

int dump_events_next(const struct dump_events *events, size_t *row, size_t *note, struct dump_text *text)
{
    for (; *row < events->count; ++*row) {
        if (put_notes(text, &events->notes, note, events->seq[*row]) || text_full(text, DUMP_MAX_LINE))
            return 1;
        int error = put_event(events, *row, text);
        if (error < 0)
            return error;
    }
    return put_notes(text, &events->notes, note, INT64_MAX);
}
