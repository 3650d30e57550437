/* SPDX-License-Identifier: MIT */
/*
 * A cursor over hostile bytes: every read is checked, a read past the end sets `bad` and gives zero, and once bad
 * a cursor stays where it is. Pure, borrows the bytes.
 */
#ifndef PTD_CURSOR_H
#define PTD_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct ptd_cursor {
    const uint8_t *at;
    const uint8_t *end;
    bool bad;
};

static inline size_t ptd_cursor_left(const struct ptd_cursor *cursor)
{
    return cursor->bad ? 0 : (size_t)(cursor->end - cursor->at);
}

static inline bool ptd_cursor_skip(struct ptd_cursor *cursor, uint64_t size)
{
    if (size > ptd_cursor_left(cursor)) {
        cursor->bad = true;
        return false;
    }
    cursor->at += size;
    return true;
}

/* A little-endian number of `width` (1 to 8) bytes. */
static inline uint64_t ptd_cursor_number(struct ptd_cursor *cursor, unsigned width)
{
    const uint8_t *at = cursor->at;
    uint64_t value = 0;
    if (!ptd_cursor_skip(cursor, width))
        return 0;
    for (unsigned i = 0; i < width; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

static inline uint64_t ptd_cursor_uleb(struct ptd_cursor *cursor)
{
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        uint8_t byte = (uint8_t)ptd_cursor_number(cursor, 1);
        if (shift < 64)
            value |= (uint64_t)(byte & 0x7F) << shift;
        if (cursor->bad || !(byte & 0x80))
            return value;
    }
}

static inline int64_t ptd_cursor_sleb(struct ptd_cursor *cursor)
{
    uint64_t value = 0;
    for (unsigned shift = 0;;) {
        uint8_t byte = (uint8_t)ptd_cursor_number(cursor, 1);
        if (shift < 64)
            value |= (uint64_t)(byte & 0x7F) << shift;
        shift += 7;
        if (!cursor->bad && byte & 0x80)
            continue;
        if (shift < 64 && byte & 0x40)
            value |= ~UINT64_C(0) << shift;
        return (int64_t)value;
    }
}

/* A NUL-terminated text; "" and bad when it does not end. */
static inline const char *ptd_cursor_text(struct ptd_cursor *cursor)
{
    const uint8_t *start = cursor->at;
    const uint8_t *nul = cursor->bad ? NULL : memchr(start, 0, ptd_cursor_left(cursor));
    if (!nul) {
        cursor->bad = true;
        return "";
    }
    cursor->at = nul + 1;
    return (const char *)start;
}

#endif
