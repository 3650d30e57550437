/* SPDX-License-Identifier: MIT */
/*
 * DWARF line table headers, versions 2 to 5 (DWARF 5, section 6.2.4).
 *
 * Work and memory are bounded by the header's size: every entry read has taken at least a byte of it. The header
 * borrows its texts from the sections and owns its tables. Not thread-safe.
 */
#include "line_header.h"
#include "dwarf_form.h"

#include <errno.h>
#include <stdlib.h>

enum content { DW_LNCT_PATH = 1, DW_LNCT_DIRECTORY_INDEX = 2 };

enum { MAX_FORMATS = 255, MAX_ENTRIES = 1 << 20 };

struct format {
    uint64_t content;
    uint64_t form;
};

static int add_entry(struct ptd_line_entries *entries, const char *name, uint64_t directory)
{
    if (entries->count == MAX_ENTRIES) /* more than any compilation has: memory is what counts here */
        return 0;
    if (entries->count == entries->capacity) {
        size_t capacity = entries->capacity ? 2 * entries->capacity : 16;
        struct ptd_line_entry *larger = realloc(entries->entries, capacity * sizeof *larger);
        if (!larger)
            return -ENOMEM;
        entries->entries = larger;
        entries->capacity = capacity;
    }
    entries->entries[entries->count++] = (struct ptd_line_entry){.name = name, .directory = directory};
    return 0;
}

/* ---- versions 2 to 4: lists ended by an empty name ---- */

static int read_directory_list(struct ptd_line_header *header, struct ptd_cursor *at)
{
    int error = add_entry(&header->directories, "", 0); /* 0: the directory of compilation */
    while (error == 0) {
        const char *name = ptd_cursor_text(at);
        if (at->bad || !*name)
            break;
        error = add_entry(&header->directories, name, 0);
    }
    return error;
}

static int read_file_list(struct ptd_line_header *header, struct ptd_cursor *at)
{
    int error = add_entry(&header->files, "", 0); /* numbered from 1 */
    while (error == 0) {
        const char *name = ptd_cursor_text(at);
        if (at->bad || !*name)
            break;
        uint64_t directory = ptd_cursor_uleb(at);
        ptd_cursor_uleb(at); /* time of modification */
        ptd_cursor_uleb(at); /* length */
        if (!at->bad)
            error = add_entry(&header->files, name, directory);
    }
    return error;
}

/* ---- version 5: tables with formats ---- */

static int read_entry_table(struct ptd_line_header *header, struct ptd_line_entries *entries, struct ptd_cursor *at,
                            const struct ptd_line_sections *sections)
{
    const struct ptd_form_sizes sizes = {
        .version = header->version, .offset_size = header->offset_size, .address_size = 8};
    struct format formats[MAX_FORMATS];
    size_t format_count = ptd_cursor_number(at, 1);
    for (size_t i = 0; i < format_count; i++) {
        formats[i].content = ptd_cursor_uleb(at);
        formats[i].form = ptd_cursor_uleb(at);
        if (formats[i].form == DW_FORM_STRP && !sections->strings_size)
            header->wants_strings = true;
        if (ptd_form_is_empty(formats[i].form)) /* any number of them would "fit" */
            at->bad = true;
    }
    uint64_t count = ptd_cursor_uleb(at);
    /* entries without attributes take no bytes: any number of them would "fit" */
    if ((count && !format_count) || count > ptd_cursor_left(at) || count > MAX_ENTRIES)
        at->bad = true;
    for (uint64_t i = 0; i < count && !at->bad; i++) {
        const char *name = "";
        uint64_t directory = 0;
        for (size_t f = 0; f < format_count; f++) {
            struct ptd_form_value value = ptd_form_read(&sizes, at, formats[f].form, sections);
            if (formats[f].content == DW_LNCT_PATH && value.text)
                name = value.text;
            else if (formats[f].content == DW_LNCT_DIRECTORY_INDEX)
                directory = value.number;
        }
        int error = at->bad ? 0 : add_entry(entries, name, directory);
        if (error < 0)
            return error;
    }
    return 0;
}

static int read_entries(struct ptd_line_header *header, struct ptd_cursor *at,
                        const struct ptd_line_sections *sections)
{
    int error;
    if (header->version >= 5) {
        error = read_entry_table(header, &header->directories, at, sections);
        if (error == 0)
            error = read_entry_table(header, &header->files, at, sections);
    } else {
        error = read_directory_list(header, at);
        if (error == 0)
            error = read_file_list(header, at);
    }
    return error;
}

int ptd_line_header_init(struct ptd_line_header *header, struct ptd_cursor *unit, unsigned offset_size,
                         const struct ptd_line_sections *sections)
{
    memset(header, 0, sizeof *header);
    header->offset_size = offset_size;
    header->version = (unsigned)ptd_cursor_number(unit, 2);
    if (header->version < 2 || header->version > 5)
        return 0;
    if (header->version >= 5)
        ptd_cursor_skip(unit, 2); /* sizes of addresses and of segment selectors */
    uint64_t length = ptd_cursor_number(unit, offset_size);
    if (length > ptd_cursor_left(unit))
        return 0;
    struct ptd_cursor at = {.at = unit->at, .end = unit->at + length};
    header->minimum_instruction_length = (uint8_t)ptd_cursor_number(&at, 1);
    if (header->version >= 4)
        ptd_cursor_skip(&at, 1); /* operations per instruction: 1 but on VLIW machines */
    ptd_cursor_skip(&at, 1);     /* default of is_stmt */
    header->line_base = (int8_t)ptd_cursor_number(&at, 1);
    header->line_range = (uint8_t)ptd_cursor_number(&at, 1);
    header->opcode_base = (uint8_t)ptd_cursor_number(&at, 1);
    header->opcode_lengths = at.at;
    if (!header->line_range || !header->opcode_base || !ptd_cursor_skip(&at, header->opcode_base - 1u))
        return 0;
    int error = read_entries(header, &at, sections);
    if (error < 0)
        return error;
    unit->at += length;
    return !at.bad;
}

void ptd_line_header_deinit(struct ptd_line_header *header)
{
    free(header->directories.entries);
    free(header->files.entries);
}
