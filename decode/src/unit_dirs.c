/* SPDX-License-Identifier: MIT */
/*
 * The first entry of every unit in .debug_info (DWARF 5, sections 7.5 and 3.1.1): its DW_AT_stmt_list and
 * DW_AT_comp_dir.
 *
 * Work is bounded: each unit is skipped by its length, and looking for abbreviations stops when it has read several
 * times the sections' size. Owns its table, borrows texts from the sections; not thread-safe.
 */
#include "unit_dirs.h"

#include "cursor.h"
#include "dwarf_form.h"
#include "grow.h"

#include <stdlib.h>

enum { DW_AT_STMT_LIST = 0x10, DW_AT_COMP_DIR = 0x1B };

enum unit_type { DW_UT_COMPILE = 1, DW_UT_TYPE, DW_UT_PARTIAL, DW_UT_SKELETON, DW_UT_SPLIT_COMPILE, DW_UT_SPLIT_TYPE };

enum { MAX_UNITS = 1 << 20, WORK_RATIO = 8, SMALL = 1 << 16 };

/* One unit while its first entry is read. */
struct unit {
    struct ptd_form_sizes sizes;
    uint64_t abbreviations; /* offset in .debug_abbrev */
};

static struct ptd_cursor cursor_at(const uint8_t *section, size_t size, uint64_t offset)
{
    struct ptd_cursor cursor = {.at = section, .end = section + size, .bad = offset > size};
    if (!cursor.bad)
        cursor.at += offset;
    return cursor;
}

/* Read a unit's header after its length. False when it is none whose first entry we can read. */
static bool read_header(struct unit *unit, struct ptd_cursor *at, unsigned offset_size)
{
    *unit = (struct unit){.sizes = {.offset_size = offset_size, .version = (unsigned)ptd_cursor_number(at, 2)}};
    uint64_t type = DW_UT_COMPILE;
    if (unit->sizes.version >= 5) {
        type = ptd_cursor_number(at, 1);
        unit->sizes.address_size = (unsigned)ptd_cursor_number(at, 1);
        unit->abbreviations = ptd_cursor_number(at, offset_size);
        if (type == DW_UT_SKELETON)
            ptd_cursor_skip(at, 8); /* id of the split unit */
    } else {
        unit->abbreviations = ptd_cursor_number(at, offset_size);
        unit->sizes.address_size = (unsigned)ptd_cursor_number(at, 1);
    }
    return !at->bad && unit->sizes.version >= 2 && unit->sizes.version <= 5 && unit->sizes.address_size <= 8 &&
           (type == DW_UT_COMPILE || type == DW_UT_PARTIAL || type == DW_UT_SKELETON);
}

/* Skip a declaration's attributes: pairs up to (0, 0). */
static void skip_attributes(struct ptd_cursor *at)
{
    uint64_t name, form;
    do {
        name = ptd_cursor_uleb(at);
        form = ptd_cursor_uleb(at);
        if (form == DW_FORM_IMPLICIT_CONST)
            ptd_cursor_sleb(at);
    } while (!at->bad && (name || form));
}

/* Find the declaration of `code`; the cursor returned is at its attributes, bad when there is none. */
static struct ptd_cursor find_abbreviation(const struct unit *unit, const struct ptd_line_sections *sections,
                                           uint64_t code, size_t *work)
{
    struct ptd_cursor at = cursor_at(sections->abbrev, sections->abbrev_size, unit->abbreviations);
    for (;;) {
        const uint8_t *before = at.at;
        uint64_t found = ptd_cursor_uleb(&at);
        ptd_cursor_uleb(&at);   /* tag */
        ptd_cursor_skip(&at, 1); /* has children */
        if (!found)
            at.bad = true;
        if (at.bad || found == code)
            return at;
        skip_attributes(&at);
        size_t read = (size_t)(at.at - before);
        if (read > *work)
            at.bad = true;
        else
            *work -= read;
    }
}

/* Read a unit's first entry. True when it says both where its line table is and where it was compiled. */
static bool read_entry(struct ptd_unit_dir *ret, const struct unit *unit, struct ptd_cursor *at,
                       const struct ptd_line_sections *sections, size_t *work)
{
    struct ptd_cursor declared = find_abbreviation(unit, sections, ptd_cursor_uleb(at), work);
    bool has_line = false;
    *ret = (struct ptd_unit_dir){0, NULL};
    while (!declared.bad && !at->bad && !(has_line && ret->folder)) {
        uint64_t name = ptd_cursor_uleb(&declared), form = ptd_cursor_uleb(&declared);
        if (declared.bad || (!name && !form))
            break;
        if (form == DW_FORM_IMPLICIT_CONST)
            ptd_cursor_sleb(&declared);
        struct ptd_form_value value = ptd_form_read(&unit->sizes, at, form, sections);
        if (at->bad)
            break;
        if (name == DW_AT_STMT_LIST) {
            ret->line = value.number;
            has_line = true;
        } else if (name == DW_AT_COMP_DIR) {
            ret->folder = value.text;
        }
    }
    return has_line && ret->folder && *ret->folder;
}

static int by_line(const void *left, const void *right)
{
    const struct ptd_unit_dir *a = left, *b = right;
    return (a->line > b->line) - (a->line < b->line);
}

static int add(struct ptd_unit_dirs *dirs, struct ptd_unit_dir entry)
{
    if (dirs->count == dirs->capacity) {
        size_t capacity = dirs->capacity ? 2 * dirs->capacity : 64;
        if (ptd_grow(&dirs->entries, capacity, sizeof *dirs->entries) < 0)
            return -ENOMEM;
        dirs->capacity = capacity;
    }
    dirs->entries[dirs->count++] = entry;
    return 0;
}

int ptd_unit_dirs_init(struct ptd_unit_dirs *dirs, const struct ptd_line_sections *sections)
{
    *dirs = (struct ptd_unit_dirs){NULL, 0, 0};
    struct ptd_cursor all = cursor_at(sections->info, sections->info_size, 0);
    size_t work = WORK_RATIO * (sections->info_size + sections->abbrev_size) + SMALL;
    while (ptd_cursor_left(&all) && dirs->count < MAX_UNITS) {
        unsigned offset_size = 4;
        uint64_t length = ptd_cursor_number(&all, 4);
        if (length == 0xFFFFFFFF) {
            offset_size = 8;
            length = ptd_cursor_number(&all, 8);
        }
        struct ptd_cursor at = {.at = all.at};
        if (!ptd_cursor_skip(&all, length))
            break;
        at.end = all.at;
        struct unit unit;
        struct ptd_unit_dir entry;
        if (read_header(&unit, &at, offset_size) && read_entry(&entry, &unit, &at, sections, &work) &&
            add(dirs, entry) < 0)
            return -ENOMEM;
    }
    if (dirs->count)
        qsort(dirs->entries, dirs->count, sizeof *dirs->entries, by_line);
    return 0;
}

void ptd_unit_dirs_deinit(struct ptd_unit_dirs *dirs)
{
    free(dirs->entries);
}

const char *ptd_unit_dirs_find(const struct ptd_unit_dirs *dirs, uint64_t line)
{
    struct ptd_unit_dir wanted = {.line = line};
    const struct ptd_unit_dir *found =
        dirs->count ? bsearch(&wanted, dirs->entries, dirs->count, sizeof wanted, by_line) : NULL;
    return found ? found->folder : "";
}
