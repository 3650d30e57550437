/* SPDX-License-Identifier: MIT */
/* Headers of DWARF line tables: where the program is, how it is encoded, which files it speaks of. */
#ifndef PTD_LINE_HEADER_H
#define PTD_LINE_HEADER_H

#include "api.h"
#include "cursor.h"

/* One entry of the directory or file table. Texts lie in the sections. */
struct ptd_line_entry {
    const char *name;
    uint64_t directory;
};

struct ptd_line_entries {
    struct ptd_line_entry *entries;
    size_t count;
    size_t capacity;
};

struct ptd_line_header {
    unsigned version;
    unsigned offset_size; /* 4, or 8 in 64-bit DWARF */
    uint8_t minimum_instruction_length;
    int8_t line_base;
    uint8_t line_range;
    uint8_t opcode_base;
    const uint8_t *opcode_lengths; /* opcode_base - 1 of them */
    struct ptd_line_entries directories;
    struct ptd_line_entries files;
    bool wants_strings; /* a name lies in .debug_str, which was not given */
};

/*
 * Read the header of the unit that `unit` spans (after its length); leaves the cursor at the line program.
 * Returns 1, 0 when it is malformed, -ENOMEM. deinit in every case.
 */
int ptd_line_header_init(struct ptd_line_header *header, struct ptd_cursor *unit, unsigned offset_size,
                         const struct ptd_line_sections *sections);
void ptd_line_header_deinit(struct ptd_line_header *header);

#endif
