/* SPDX-License-Identifier: MIT */
/*
 * Executed paths as text: an address, an instruction or a block a line. Where the text is full everything stops in
 * the middle, to go on with the next one. Borrows its tables and batches, whose ids are checked. Not thread-safe.
 */
#include "dump_code.h"
#include "dump_text.h"

#include <errno.h>
#include <stdlib.h>

struct dump_flow {
    struct dump_tables tables;
    enum dump_form form;
    struct dump_code *code;
    const struct dump_batch *batch;
    size_t row;         /* in the batch */
    int32_t block;      /* in the row's path */
    int32_t instruction;
    uint64_t offset;    /* of the instruction in its block */
    size_t text_offset; /* of the instruction in its block's text */
    size_t clock;
    size_t note;
    bool known;
    int64_t t;
    int32_t bad_block;
    uint64_t lines;
};

int dump_flow_create(const struct dump_tables *tables, enum dump_form form, struct dump_flow **ret)
{
    struct dump_flow *dump = calloc(1, sizeof *dump);
    if (!dump)
        return -ENOMEM;
    dump->tables = *tables;
    dump->form = form;
    dump->bad_block = -1;
    int error = form == DUMP_BLOCKS ? 0 : dump_code_create(&dump->tables, &dump->code);
    if (error < 0) {
        free(dump);
        return error;
    }
    *ret = dump;
    return 0;
}

void dump_flow_destroy(struct dump_flow *dump)
{
    if (!dump)
        return;
    dump_code_destroy(dump->code);
    free(dump);
}

void dump_flow_thread(struct dump_flow *dump)
{
    dump->known = false;
}

void dump_flow_set(struct dump_flow *dump, const struct dump_batch *batch)
{
    dump->batch = batch;
    dump->row = dump->clock = dump->note = 0;
    dump->block = dump->instruction = 0;
    dump->offset = dump->text_offset = 0;
}

int32_t dump_flow_bad_block(const struct dump_flow *dump)
{
    return dump->bad_block;
}

uint64_t dump_flow_lines(const struct dump_flow *dump)
{
    return dump->lines;
}

/* ---- lines ---- */

static bool put_named(const struct dump_tables *tables, struct dump_text *text, const char *before, int32_t name)
{
    if (name < 0 || (size_t)name >= tables->name_count)
        return false;
    int64_t start = tables->name_starts[name];
    put(text, before);
    put_name(text, tables->names + start, (size_t)(tables->name_starts[name + 1] - start));
    return true;
}

/* Where in the source: the function and how far into it, and, for a block's beginning, the line. */
static void put_place(const struct dump_flow *dump, struct dump_text *text, int32_t block, uint64_t offset)
{
    const struct dump_tables *tables = &dump->tables;
    if (put_named(tables, text, "  ", tables->function[block])) {
        put(text, "+0x");
        put_hex(text, (uint64_t)tables->function_offset[block] + offset, 1);
    }
    if (offset == 0 && put_named(tables, text, "  ", tables->file[block]) && tables->line[block] > 0) {
        put_char(text, ':');
        put_decimal(text, (uint64_t)tables->line[block]);
    }
    while (text->data[text->size - 1] == ' ') /* nothing is known: no column to line up with */
        text->size--;
    put_char(text, '\n');
}

static void put_head(const struct dump_flow *dump, struct dump_text *text, int64_t seq, uint64_t ip)
{
    put_decimal_right(text, seq, 12);
    put_char(text, ' ');
    put_seconds(text, dump->known, dump->t);
    put(text, "  ");
    put_address(text, ip);
    put(text, "  ");
}

static void put_block(struct dump_flow *dump, struct dump_text *text, int64_t seq, int32_t block)
{
    const struct dump_tables *tables = &dump->tables;
    put_head(dump, text, seq, tables->ip[block]);
    put_decimal_right(text, tables->size[block], 5);
    put_char(text, ' ');
    put_decimal_right(text, tables->instructions[block], 4);
    size_t start = text->size;
    if (!put_named(tables, text, "  ", tables->last[block]))
        put(text, "  other");
    put_pad(text, start, 11);
    put_place(dump, text, block, 0);
}

/* The block's instructions from where we stopped. 0, 1 (full) or -EILSEQ. */
static int put_instructions(struct dump_flow *dump, struct dump_text *text, int64_t seq, int32_t block)
{
    const struct dump_tables *tables = &dump->tables;
    bool bytes = dump->form == DUMP_INSTRUCTIONS_BYTES;
    const char *words = dump_code_text(dump->code, block, bytes);
    const uint8_t *lengths = words ? dump_code_lengths(dump->code, block) : NULL;
    if (!lengths)
        return -EILSEQ;
    for (int32_t count = tables->instructions[block]; dump->instruction < count; dump->instruction++) {
        if (text_full(text, DUMP_MAX_LINE))
            return 1;
        put_head(dump, text, seq, tables->ip[block] + dump->offset);
        const char *word = words + dump->text_offset;
        size_t size = strlen(word);
        size_t start = text->size;
        put_bytes(text, word, size);
        put_pad(text, start, bytes ? 65 : 40);
        put_place(dump, text, block, dump->offset);
        dump->text_offset += size + 1;
        dump->offset += lengths[dump->instruction];
    }
    dump->lines += (uint64_t)tables->instructions[block];
    return 0;
}

static int put_ips(struct dump_flow *dump, struct dump_text *text, int32_t block)
{
    enum { LINE = 17 };
    const uint8_t *lengths = dump_code_lengths(dump->code, block);
    if (!lengths)
        return -EILSEQ;
    uint64_t ip = dump->tables.ip[block] + dump->offset;
    int32_t count = dump->tables.instructions[block], i = dump->instruction;
    for (; i < count && !text_full(text, LINE); i++) {
        put_address(text, ip);
        put_char(text, '\n');
        ip += lengths[i];
    }
    dump->instruction = i;
    dump->offset = ip - dump->tables.ip[block];
    if (i < count)
        return 1;
    dump->lines += (uint64_t)count;
    return 0;
}

/* ---- the walk ---- */

/* The moment known last before or at `seq`. */
static void move_clock(struct dump_flow *dump, int64_t seq)
{
    const struct dump_batch *batch = dump->batch;
    for (; dump->clock < batch->clock_count && batch->clock_seq[dump->clock] <= seq; dump->clock++) {
        dump->known = true;
        dump->t = batch->clock_t[dump->clock];
    }
}

static int show(struct dump_flow *dump, struct dump_text *text, int64_t seq, int32_t block)
{
    if (dump->form == DUMP_IPS)
        return put_ips(dump, text, block);
    move_clock(dump, seq);
    if (put_notes(text, &dump->batch->notes, &dump->note, seq) || text_full(text, DUMP_MAX_LINE))
        return 1;
    if (dump->form != DUMP_BLOCKS)
        return put_instructions(dump, text, seq, block);
    put_block(dump, text, seq, block);
    dump->lines++;
    return 0;
}

/* The blocks of one executed path. 0, 1 (full) or an error. */
static int show_path(struct dump_flow *dump, struct dump_text *text, int64_t seq, int32_t path)
{
    const struct dump_tables *tables = &dump->tables;
    if (path < 0 || (size_t)path >= tables->path_count)
        return -ERANGE;
    int32_t start = tables->starts[path], end = tables->starts[path + 1];
    if (start < 0 || end < start || (size_t)end > tables->list_count)
        return -ERANGE;
    for (; dump->block < end - start; dump->block++) {
        int64_t at = seq + dump->block;
        if (at < dump->batch->from)
            continue;
        if (at >= dump->batch->to)
            break;
        int32_t block = tables->list[start + dump->block];
        if (block < 0 || (size_t)block >= tables->block_count)
            return -ERANGE;
        int status = show(dump, text, at, block);
        if (status == -EILSEQ)
            dump->bad_block = block;
        if (status)
            return status;
        dump->instruction = 0;
        dump->offset = dump->text_offset = 0;
    }
    dump->block = 0;
    return 0;
}

int dump_flow_next(struct dump_flow *dump, struct dump_text *text)
{
    const struct dump_batch *batch = dump->batch;
    for (; dump->row < batch->count; dump->row++) {
        int status = show_path(dump, text, batch->seq[dump->row], batch->path[dump->row]);
        if (status)
            return status;
    }
    if (dump->form != DUMP_IPS && put_notes(text, &batch->notes, &dump->note, INT64_MAX))
        return 1;
    move_clock(dump, INT64_MAX);
    return 0;
}
