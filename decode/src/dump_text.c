/* SPDX-License-Identifier: MIT */
/* Numbers and names as text. Pure functions. */
#include "dump_text.h"

static const char DIGITS[] = "0123456789abcdef";

void put_address(struct dump_text *text, uint64_t address)
{
    char *at = text->data + text->size;
    for (int i = 15; i >= 0; i--) {
        at[i] = DIGITS[address & 15];
        address >>= 4;
    }
    text->size += 16;
}

void put_hex(struct dump_text *text, uint64_t value, int digits)
{
    char reversed[16];
    int count = 0;
    while (value || count < digits) {
        reversed[count++] = DIGITS[value & 15];
        value >>= 4;
    }
    while (count)
        put_char(text, reversed[--count]);
}

void put_decimal(struct dump_text *text, uint64_t value)
{
    char reversed[20];
    int count = 0;
    do {
        reversed[count++] = DIGITS[value % 10];
        value /= 10;
    } while (value);
    while (count)
        put_char(text, reversed[--count]);
}

static void move_right(struct dump_text *text, size_t start, size_t width)
{
    size_t size = text->size - start;
    if (size >= width)
        return;
    memmove(text->data + start + width - size, text->data + start, size);
    memset(text->data + start, ' ', width - size);
    text->size = start + width;
}

void put_decimal_right(struct dump_text *text, int64_t value, size_t width)
{
    size_t start = text->size;
    if (value < 0)
        put_char(text, '-');
    put_decimal(text, value < 0 ? -(uint64_t)value : (uint64_t)value);
    move_right(text, start, width);
}

void put_seconds(struct dump_text *text, bool known, int64_t ns)
{
    size_t start = text->size;
    if (!known) {
        put_char(text, '-');
    } else {
        uint64_t value = ns < 0 ? -(uint64_t)ns : (uint64_t)ns;
        if (ns < 0)
            put_char(text, '-');
        put_decimal(text, value / 1000000000);
        put_char(text, '.');
        uint64_t rest = value % 1000000000;
        for (uint64_t unit = 100000000; unit; unit /= 10)
            put_char(text, DIGITS[rest / unit % 10]);
    }
    move_right(text, start, 14);
}

void put_pad(struct dump_text *text, size_t start, size_t width)
{
    while (text->size < start + width)
        put_char(text, ' ');
}

static void put_escaped(struct dump_text *text, unsigned char byte)
{
    put(text, "\\x");
    put_hex(text, byte, 2);
}

void put_name(struct dump_text *text, const char *name, size_t size)
{
    bool cut = size > DUMP_MAX_NAME;
    if (cut)
        for (size = DUMP_MAX_NAME; size > DUMP_MAX_NAME - 4 && ((unsigned char)name[size] & 0xC0) == 0x80;)
            size--; /* not in the middle of a character */
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)name[i];
        /* C1 controls are C2 80 to C2 9F; E2 80 and E2 81 are where the characters that turn text around live */
        bool c1 = byte == 0xC2 && i + 1 < size && (unsigned char)name[i + 1] < 0xA0;
        bool turns = byte == 0xE2 && i + 2 < size && ((unsigned char)name[i + 1] == 0x80 ||
                                                      (unsigned char)name[i + 1] == 0x81);
        if (byte < 0x20 || byte == 0x7F) {
            put_escaped(text, byte);
        } else if (c1 || turns) {
            for (size_t end = i + (c1 ? 2 : 3); i < end; i++)
                put_escaped(text, (unsigned char)name[i]);
            i--;
        } else {
            put_char(text, (char)byte);
        }
    }
    if (cut)
        put(text, "...");
}

bool put_notes(struct dump_text *text, const struct dump_notes *notes, size_t *note, int64_t seq)
{
    for (; *note < notes->count && notes->seq[*note] <= seq; ++*note) {
        if (text_full(text, DUMP_MAX_NOTE))
            return true;
        size_t size = (size_t)(notes->starts[*note + 1] - notes->starts[*note]);
        put_bytes(text, notes->text + notes->starts[*note], size < DUMP_MAX_NOTE - 1 ? size : DUMP_MAX_NOTE - 1);
        put_char(text, '\n');
    }
    return false;
}
