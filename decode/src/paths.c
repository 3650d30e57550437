/* SPDX-License-Identifier: MIT */
/*
 * Interning of paths: runs of blocks, stored once however often they execute.
 *
 * How long a run may get trades rows for distinct paths. Twelve decisions suit ordinary programs; code that branches
 * at random would make every run a new path, so the limit falls as the dictionary grows, which bounds its memory.
 * Owns all its memory; not thread-safe.
 */
#include "paths.h"
#include "grow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 1024 };

/* From how many distinct paths on a run is cut after how many decisions. */
static const struct {
    size_t paths;
    uint32_t decisions;
} LIMITS[] = {{0, 12}, {1 << 20, 8}, {3 << 19, 6}, {1 << 21, 4}, {5 << 19, 2}, {3 << 20, 1}};

static uint32_t decisions_limit(size_t count)
{
    uint32_t decisions = 1;
    for (size_t i = 0; i < sizeof LIMITS / sizeof *LIMITS && count >= LIMITS[i].paths; i++)
        decisions = LIMITS[i].decisions;
    return decisions;
}

int ptd_paths_init(struct ptd_paths *paths)
{
    memset(paths, 0, sizeof *paths);
    paths->decisions_limit = decisions_limit(0);
    paths->table_mask = 4 * FIRST_CAPACITY - 1;
    paths->table = calloc(paths->table_mask + 1, sizeof *paths->table);
    paths->starts = calloc(1, sizeof *paths->starts);
    if (!paths->table || !paths->starts)
        return -ENOMEM;
    return 0;
}

void ptd_paths_deinit(struct ptd_paths *paths)
{
    free(paths->starts);
    free(paths->length);
    free(paths->instructions);
    free(paths->branches);
    free(paths->hashes);
    free(paths->blocks);
    free(paths->table);
}

static int grow_columns(struct ptd_paths *paths)
{
    size_t capacity = paths->capacity ? 2 * paths->capacity : FIRST_CAPACITY;
    if (capacity > INT32_MAX)
        return -EOVERFLOW;
    if (ptd_grow(&paths->starts, capacity + 1, sizeof *paths->starts) < 0 ||
        ptd_grow(&paths->length, capacity, sizeof *paths->length) < 0 ||
        ptd_grow(&paths->instructions, capacity, sizeof *paths->instructions) < 0 ||
        ptd_grow(&paths->branches, capacity, sizeof *paths->branches) < 0 ||
        ptd_grow(&paths->hashes, capacity, sizeof *paths->hashes) < 0)
        return -ENOMEM;
    paths->capacity = capacity;
    return 0;
}

static int grow_blocks(struct ptd_paths *paths, size_t needed)
{
    size_t capacity = paths->block_capacity ? paths->block_capacity : FIRST_CAPACITY;
    while (capacity < needed)
        capacity *= 2;
    if (needed > INT32_MAX) /* Arrow's list offsets are 32-bit */
        return -EOVERFLOW;
    int error = ptd_grow(&paths->blocks, capacity, sizeof *paths->blocks);
    if (error < 0)
        return error;
    paths->block_capacity = capacity;
    return 0;
}

static struct ptd_path_entry entry_of(uint64_t mixed, size_t path)
{
    return (struct ptd_path_entry){.tag = (uint32_t)(mixed >> 32), .path_plus_1 = (uint32_t)path + 1};
}

static int grow_table(struct ptd_paths *paths)
{
    uint64_t mask = 2 * paths->table_mask + 1;
    struct ptd_path_entry *table = calloc(mask + 1, sizeof *table);
    if (!table)
        return -ENOMEM;
    for (size_t i = 0; i < paths->count; i++) {
        uint64_t mixed = ptd_mix(paths->hashes[i]), slot = mixed & mask;
        while (table[slot].path_plus_1)
            slot = (slot + 1) & mask;
        table[slot] = entry_of(mixed, i);
    }
    free(paths->table);
    paths->table = table;
    paths->table_mask = mask;
    return 0;
}

static int same(const struct ptd_paths *paths, size_t i, const struct ptd_run *run)
{
    int32_t start = paths->starts[i];
    return paths->starts[i + 1] - start == (int32_t)run->length &&
           memcmp(paths->blocks + start, run->blocks, run->length * sizeof *run->blocks) == 0;
}

static int add(struct ptd_paths *paths, const struct ptd_run *run, const int32_t *instructions, const int8_t *last)
{
    size_t needed = paths->block_count + run->length;
    int error = 0;
    if (paths->count == paths->capacity)
        error = grow_columns(paths);
    if (error == 0 && needed > paths->block_capacity)
        error = grow_blocks(paths, needed);
    if (error < 0)
        return error;

    int32_t total = 0, branches = 0; /* at most PATH_MAX_BLOCKS * 65535 */
    for (uint32_t i = 0; i < run->length; i++) {
        total += instructions[run->blocks[i]];
        branches += last[run->blocks[i]] != PTD_OTHER;
    }
    size_t path = paths->count;
    memcpy(paths->blocks + paths->block_count, run->blocks, run->length * sizeof *run->blocks);
    paths->block_count = needed;
    paths->starts[path + 1] = (int32_t)needed;
    paths->length[path] = (int32_t)run->length;
    paths->instructions[path] = total;
    paths->branches[path] = branches;
    paths->hashes[path] = run->hash;
    paths->count++;
    paths->decisions_limit = decisions_limit(paths->count);
    return 0;
}

void ptd_paths_truncate(struct ptd_paths *paths, size_t count)
{
    /* Last in, first out: nothing was put behind an entry that is taken away. */
    while (paths->count > count) {
        size_t i = --paths->count;
        uint64_t slot = ptd_mix(paths->hashes[i]) & paths->table_mask;
        while (paths->table[slot].path_plus_1 != i + 1)
            slot = (slot + 1) & paths->table_mask;
        paths->table[slot] = (struct ptd_path_entry){0};
    }
    paths->block_count = (size_t)paths->starts[count];
    paths->decisions_limit = decisions_limit(count);
}

int ptd_paths_intern(struct ptd_paths *paths, const struct ptd_run *run, const int32_t *instructions,
                     const int8_t *last, int32_t *ret)
{
    if (2 * paths->count > paths->table_mask) {
        int error = grow_table(paths);
        if (error < 0)
            return error;
    }
    uint64_t mixed = ptd_mix(run->hash), slot = mixed & paths->table_mask;
    for (; paths->table[slot].path_plus_1; slot = (slot + 1) & paths->table_mask) {
        const struct ptd_path_entry *entry = &paths->table[slot];
        if (entry->tag == (uint32_t)(mixed >> 32) && same(paths, entry->path_plus_1 - 1, run)) {
            *ret = (int32_t)(entry->path_plus_1 - 1);
            return 0;
        }
    }
    int error = add(paths, run, instructions, last);
    if (error < 0)
        return error;
    paths->table[slot] = entry_of(mixed, paths->count - 1);
    *ret = (int32_t)(paths->count - 1);
    return 0;
}
