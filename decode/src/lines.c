/* SPDX-License-Identifier: MIT */
/*
 * DWARF line tables as columns (DWARF 5, section 6.2; versions 2 to 4 differ in their headers only).
 *
 * Reads all of .debug_line once, front to back: work is bounded by its size, memory by max_rows and max_names, and by
 * the number of wanted addresses when there are some: then a row is kept when such an address is between it and the
 * next one, and an end where kept rows are followed by others. A malformed unit is
 * given up where it is malformed; its length says where the next one begins. The result owns its memory; not
 * thread-safe.
 */
#include "cursor.h"
#include "grow.h"
#include "line_header.h"
#include "unit_dirs.h"

#include <errno.h>
#include <stdlib.h>

enum standard_opcode {
    DW_LNS_COPY = 1,
    DW_LNS_ADVANCE_PC,
    DW_LNS_ADVANCE_LINE,
    DW_LNS_SET_FILE,
    DW_LNS_SET_COLUMN,
    DW_LNS_NEGATE_STMT,
    DW_LNS_SET_BASIC_BLOCK,
    DW_LNS_CONST_ADD_PC,
    DW_LNS_FIXED_ADVANCE_PC
};

enum extended_opcode { DW_LNE_END_SEQUENCE = 1, DW_LNE_SET_ADDRESS, DW_LNE_DEFINE_FILE };

enum { FIRST_CAPACITY = 4096, MAX_PATH = 4096 };

/* What is being built; capacities beside the result's counts. */
struct builder {
    struct ptd_lines *lines;
    size_t row_capacity;
    size_t file_capacity;
    size_t name_capacity;
    size_t max_rows;
    size_t max_names;
    const uint64_t *wanted; /* sorted; NULL all rows are kept */
    size_t wanted_count;
    uint64_t lowest;
};

/* The state machine of one line program. */
struct machine {
    const struct ptd_line_header *header;
    int32_t *files; /* header file → number in the result, -2 not there yet */
    size_t file_count;
    uint64_t address;
    uint64_t file;
    uint64_t line;
    bool begun; /* the sequence has a row */
    bool dead;  /* it is of code the linker dropped */
    /* with wanted addresses: the row before, which is kept when the next one shows that it is needed */
    bool has_row;
    bool kept_before; /* the row before that one was kept: it needs an end */
    uint64_t row_address;
    uint64_t row_file;
    uint64_t row_line;
    size_t next_wanted; /* the first wanted address that is not below the row's */
};

static int grow_rows(struct builder *builder)
{
    struct ptd_lines *lines = builder->lines;
    size_t capacity = builder->row_capacity ? 2 * builder->row_capacity : FIRST_CAPACITY;
    if (ptd_grow(&lines->address, capacity, sizeof *lines->address) < 0 ||
        ptd_grow(&lines->file, capacity, sizeof *lines->file) < 0 ||
        ptd_grow(&lines->line, capacity, sizeof *lines->line) < 0 ||
        ptd_grow(&lines->end, capacity, sizeof *lines->end) < 0)
        return -ENOMEM;
    builder->row_capacity = capacity;
    return 0;
}

/* ---- files ---- */

static size_t length_of(const char *text, size_t limit)
{
    size_t length = 0;
    while (length < limit && text[length])
        length++;
    return length;
}

/* Append "directory/name" to the result's names. Returns its number, -1 when names take too much, or -ENOMEM. */
static int64_t add_file(struct builder *builder, const char *directory, const char *name)
{
    struct ptd_lines *lines = builder->lines;
    size_t before = *name == '/' ? 0 : length_of(directory, MAX_PATH), size = length_of(name, MAX_PATH);
    size_t needed = lines->names_size + before + size + 2;
    lines->nameless |= needed > builder->max_names;
    if (!size || lines->nameless)
        return -1;
    if (lines->file_count == builder->file_capacity) {
        size_t capacity = builder->file_capacity ? 2 * builder->file_capacity : 64;
        if (ptd_grow(&lines->file_starts, capacity, sizeof *lines->file_starts) < 0)
            return -ENOMEM;
        builder->file_capacity = capacity;
    }
    if (needed > builder->name_capacity) {
        if (ptd_grow(&lines->names, 2 * needed, 1) < 0)
            return -ENOMEM;
        builder->name_capacity = 2 * needed;
    }
    char *to = lines->names + lines->names_size;
    lines->file_starts[lines->file_count] = lines->names_size;
    memcpy(to, directory, before);
    to += before;
    if (before)
        *to++ = '/';
    memcpy(to, name, size);
    to[size] = '\0';
    lines->names_size = (size_t)(to + size + 1 - lines->names);
    return (int64_t)lines->file_count++;
}

/* Path of directory `index`: relative ones are below directory 0. */
static void directory_of(const struct ptd_line_header *header, uint64_t index, char path[MAX_PATH])
{
    const struct ptd_line_entries *directories = &header->directories;
    const char *base = directories->count ? directories->entries[0].name : "";
    const char *name = index < directories->count ? directories->entries[index].name : "";
    size_t size = 0;
    if (index && *name != '/' && *base) {
        size = length_of(base, MAX_PATH / 2);
        memcpy(path, base, size);
        path[size++] = '/';
    }
    size_t rest = length_of(name, MAX_PATH / 2 - 1);
    memcpy(path + size, name, rest);
    path[size + rest] = '\0';
}

/* The result's number of the machine's current file, -1 when the header has none. */
static int64_t file_of(struct builder *builder, struct machine *machine)
{
    if (machine->file >= machine->file_count)
        return -1;
    int32_t *known = &machine->files[machine->file];
    if (*known == -2 && builder->lines->nameless)
        *known = -1;
    if (*known == -2) {
        const struct ptd_line_entry *entry = &machine->header->files.entries[machine->file];
        char directory[MAX_PATH];
        directory_of(machine->header, entry->directory, directory);
        int64_t number = add_file(builder, directory, entry->name);
        if (number == -ENOMEM)
            return -ENOMEM;
        *known = (int32_t)number;
    }
    return *known;
}

/* ---- line programs ---- */

/* Append a row; the machine's current file is `file`. Returns 0 or -ENOMEM. */
static int put_row(struct builder *builder, struct machine *machine, uint64_t address, uint64_t line, bool end)
{
    struct ptd_lines *lines = builder->lines;
    if (lines->count == builder->max_rows) {
        lines->full = 1;
        return 0;
    }
    if (lines->count == builder->row_capacity) {
        int error = grow_rows(builder);
        if (error < 0)
            return error;
    }
    int64_t file = file_of(builder, machine);
    if (file == -ENOMEM)
        return -ENOMEM;
    size_t row = lines->count++;
    lines->address[row] = address;
    lines->file[row] = (int32_t)file;
    lines->line[row] = line <= INT32_MAX ? (int32_t)line : 0;
    lines->end[row] = end;
    return 0;
}

/* The first wanted address that is not below `address`. */
static size_t lower_bound(const struct builder *builder, uint64_t address)
{
    size_t from = 0, to = builder->wanted_count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (builder->wanted[middle] < address)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* The row before ends at `address`: keep it if a wanted address is in it. Returns 0 or -ENOMEM. */
static int settle_row(struct builder *builder, struct machine *machine, uint64_t address)
{
    size_t next = machine->next_wanted;
    bool needed = next < builder->wanted_count && builder->wanted[next] < address;
    int error = 0;
    if (needed) {
        uint64_t file = machine->file;
        machine->file = machine->row_file;
        error = put_row(builder, machine, machine->row_address, machine->row_line, false);
        machine->file = file;
    } else if (machine->kept_before) {
        error = put_row(builder, machine, machine->row_address, 0, true);
    }
    machine->kept_before = needed;
    return error;
}

/* Take the machine's state as the next row of its sequence. Returns 0 or -ENOMEM. */
static int add_row(struct builder *builder, struct machine *machine, bool end)
{
    if (!machine->begun)
        machine->dead = machine->address < builder->lowest;
    machine->begun = true;
    if (machine->dead)
        return 0;
    if (!builder->wanted)
        return put_row(builder, machine, machine->address, machine->line, end);
    bool back = machine->has_row && machine->address < machine->row_address; /* malformed: as if it began anew */
    int error = 0;
    if (machine->has_row && machine->address > machine->row_address)
        error = settle_row(builder, machine, machine->address);
    if (error == 0 && (end || back) && machine->kept_before)
        error = put_row(builder, machine, back ? machine->row_address : machine->address, 0, true);
    if (end || back)
        machine->kept_before = false;
    if (!machine->has_row || back)
        machine->next_wanted = lower_bound(builder, machine->address);
    while (machine->next_wanted < builder->wanted_count && builder->wanted[machine->next_wanted] < machine->address)
        machine->next_wanted++;
    machine->has_row = !end;
    machine->row_address = machine->address;
    machine->row_file = machine->file;
    machine->row_line = machine->line;
    return error;
}

static void begin_sequence(struct machine *machine)
{
    machine->address = 0;
    machine->file = 1;
    machine->line = 1;
    machine->begun = false;
    machine->has_row = false;
    machine->kept_before = false;
}

static int extended(struct builder *builder, struct machine *machine, struct ptd_cursor *program)
{
    uint64_t size = ptd_cursor_uleb(program);
    if (!size || size > ptd_cursor_left(program)) {
        program->bad = true;
        return 0;
    }
    struct ptd_cursor at = {.at = program->at, .end = program->at + size};
    ptd_cursor_skip(program, size);
    int error = 0;
    switch (ptd_cursor_number(&at, 1)) {
    case DW_LNE_END_SEQUENCE:
        error = add_row(builder, machine, true);
        begin_sequence(machine);
        break;
    case DW_LNE_SET_ADDRESS:
        machine->address = ptd_cursor_number(&at, size - 1 <= 8 ? (unsigned)size - 1 : 8);
        break;
    default: /* define_file is not written by anybody any more; others are for their vendors */
        break;
    }
    return error;
}

static void advance(struct machine *machine, uint64_t operations)
{
    machine->address += operations * machine->header->minimum_instruction_length;
}

static int standard(struct builder *builder, struct machine *machine, struct ptd_cursor *program, uint8_t opcode)
{
    const struct ptd_line_header *header = machine->header;
    switch (opcode) {
    case DW_LNS_COPY:
        return add_row(builder, machine, false);
    case DW_LNS_ADVANCE_PC:
        advance(machine, ptd_cursor_uleb(program));
        return 0;
    case DW_LNS_ADVANCE_LINE:
        machine->line += (uint64_t)ptd_cursor_sleb(program);
        return 0;
    case DW_LNS_SET_FILE:
        machine->file = ptd_cursor_uleb(program);
        return 0;
    case DW_LNS_CONST_ADD_PC:
        advance(machine, (255u - header->opcode_base) / header->line_range);
        return 0;
    case DW_LNS_FIXED_ADVANCE_PC:
        machine->address += ptd_cursor_number(program, 2);
        return 0;
    default: /* of no interest, or unknown: the header says how many operands to skip */
        for (uint8_t i = 0; i < header->opcode_lengths[opcode - 1]; i++)
            ptd_cursor_uleb(program);
        return 0;
    }
}

static int special(struct builder *builder, struct machine *machine, uint8_t opcode)
{
    const struct ptd_line_header *header = machine->header;
    unsigned adjusted = opcode - header->opcode_base;
    advance(machine, adjusted / header->line_range);
    machine->line += (uint64_t)(int64_t)(header->line_base + (int)(adjusted % header->line_range));
    return add_row(builder, machine, false);
}

static int run_program(struct builder *builder, const struct ptd_line_header *header, struct ptd_cursor *program)
{
    struct machine machine = {.header = header, .file_count = header->files.count};
    machine.files = malloc((machine.file_count + 1) * sizeof *machine.files);
    if (!machine.files)
        return -ENOMEM;
    for (size_t i = 0; i < machine.file_count; i++)
        machine.files[i] = -2;
    begin_sequence(&machine);
    int error = 0;
    while (error == 0 && ptd_cursor_left(program) && !builder->lines->full) {
        uint8_t opcode = (uint8_t)ptd_cursor_number(program, 1);
        if (opcode >= header->opcode_base)
            error = special(builder, &machine, opcode);
        else if (opcode)
            error = standard(builder, &machine, program, opcode);
        else
            error = extended(builder, &machine, program);
    }
    free(machine.files);
    return error;
}

static int read_unit(struct builder *builder, struct ptd_cursor unit, unsigned offset_size,
                     const struct ptd_line_sections *sections, const char *folder)
{
    struct ptd_line_header header;
    int status = ptd_line_header_init(&header, &unit, offset_size, sections);
    if (status > 0 && header.version < 5 && header.directories.count)
        header.directories.entries[0].name = folder;
    if (status > 0)
        status = run_program(builder, &header, &unit);
    else if (status == 0)
        unit.bad = true;
    builder->lines->bad_units += unit.bad;
    builder->lines->wants_strings |= header.wants_strings;
    ptd_line_header_deinit(&header);
    return status < 0 ? status : 0;
}

static int read_units(struct builder *builder, const struct ptd_line_sections *sections,
                      const struct ptd_unit_dirs *dirs)
{
    struct ptd_cursor all = {.at = sections->line, .end = sections->line + sections->line_size};
    int error = 0;
    while (error == 0 && ptd_cursor_left(&all) && !builder->lines->full) {
        const char *folder = ptd_unit_dirs_find(dirs, (uint64_t)(all.at - sections->line));
        unsigned offset_size = 4;
        uint64_t length = ptd_cursor_number(&all, 4);
        if (length == 0xFFFFFFFF) {
            offset_size = 8;
            length = ptd_cursor_number(&all, 8);
        }
        struct ptd_cursor unit = {.at = all.at};
        if (!ptd_cursor_skip(&all, length)) {
            builder->lines->bad_units++;
            break;
        }
        unit.end = all.at;
        error = read_unit(builder, unit, offset_size, sections, folder);
    }
    return error;
}

int ptd_lines_read(const struct ptd_line_sections *sections, struct ptd_lines **ret)
{
    struct ptd_lines *lines = calloc(1, sizeof *lines);
    if (!lines)
        return -ENOMEM;
    struct builder builder = {.lines = lines, .max_rows = sections->max_rows,
                              .max_names = sections->max_names, .wanted = sections->wanted,
                              .wanted_count = sections->wanted_count, .lowest = sections->lowest};
    struct ptd_unit_dirs dirs;
    int error = ptd_unit_dirs_init(&dirs, sections);
    if (error == 0)
        error = read_units(&builder, sections, &dirs);
    ptd_unit_dirs_deinit(&dirs);
    if (error < 0) {
        ptd_lines_destroy(lines);
        return error;
    }
    *ret = lines;
    return 0;
}

void ptd_lines_destroy(struct ptd_lines *lines)
{
    if (!lines)
        return;
    free(lines->address);
    free(lines->file);
    free(lines->line);
    free(lines->end);
    free(lines->file_starts);
    free(lines->names);
    free(lines);
}
