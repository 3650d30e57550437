/* SPDX-License-Identifier: MIT */
/* Putting text together, for speed without printf. The caller has seen to it that there is room. Pure functions. */
#ifndef DUMP_TEXT_H
#define DUMP_TEXT_H

#include "dump.h"

#include <stdbool.h>
#include <string.h>

enum {
    DUMP_MAX_NAME = 2048,  /* bytes of a name that are shown, before escaping: C++ knows names without end */
    DUMP_MAX_LINE = 6 * DUMP_MAX_NAME * 2 + 1024,
    DUMP_MAX_NOTE = 8192
};

static inline bool text_full(const struct dump_text *text, size_t room)
{
    return text->capacity - text->size < room;
}

static inline void put_char(struct dump_text *text, char character)
{
    text->data[text->size++] = character;
}

static inline void put_bytes(struct dump_text *text, const char *bytes, size_t size)
{
    memcpy(text->data + text->size, bytes, size);
    text->size += size;
}

static inline void put(struct dump_text *text, const char *word)
{
    put_bytes(text, word, strlen(word));
}

/* 16 digits, leading zeros and all. */
void put_address(struct dump_text *text, uint64_t address);

/* As few hex digits as it takes, at least `digits`. */
void put_hex(struct dump_text *text, uint64_t value, int digits);
void put_decimal(struct dump_text *text, uint64_t value);

/* Right-aligned in `width`. */
void put_decimal_right(struct dump_text *text, int64_t value, size_t width);

/* ns as seconds with nine decimals, right-aligned in 14. */
void put_seconds(struct dump_text *text, bool known, int64_t ns);

/* Spaces until `start` is `width` bytes behind. */
void put_pad(struct dump_text *text, size_t start, size_t width);

/* Somebody else's text: control characters, which could steer a terminal, are escaped, the rest is as it is. */
void put_name(struct dump_text *text, const char *name, size_t size);

/* Notes that belong before `seq`, from `*note` on. True: the text is full. */
bool put_notes(struct dump_text *text, const struct dump_notes *notes, size_t *note, int64_t seq);

#endif
