/* SPDX-License-Identifier: MIT */
/* Numbering of lists: each is stored once however often it executes. Owns all its memory; not thread-safe. */
#include "paths.h"
#include "grow.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 1024 };

int ptd_paths_init(struct ptd_paths *paths, int distinct)
{
    memset(paths, 0, sizeof *paths);
    paths->starts = calloc(1, sizeof *paths->starts);
    if (distinct) {
        paths->table_mask = 4 * FIRST_CAPACITY - 1;
        paths->table = calloc(paths->table_mask + 1, sizeof *paths->table);
    }
    return paths->starts && (paths->table || !distinct) ? 0 : -ENOMEM;
}

void ptd_paths_deinit(struct ptd_paths *paths)
{
    free(paths->starts);
    free(paths->length);
    free(paths->instructions);
    free(paths->hashes);
    free(paths->items);
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
        (paths->table && ptd_grow(&paths->hashes, capacity, sizeof *paths->hashes) < 0))
        return -ENOMEM;
    paths->capacity = capacity;
    return 0;
}

static int grow_items(struct ptd_paths *paths, size_t needed)
{
    size_t capacity = paths->item_capacity ? paths->item_capacity : FIRST_CAPACITY;
    while (capacity < needed)
        capacity *= 2;
    if (needed > INT32_MAX) /* Arrow's list offsets are 32-bit */
        return -EOVERFLOW;
    int error = ptd_grow(&paths->items, capacity, sizeof *paths->items);
    if (error < 0)
        return error;
    paths->item_capacity = capacity;
    return 0;
}

static struct ptd_path_entry entry_of(uint64_t mixed, size_t path)
{
    return (struct ptd_path_entry){.tag = (uint32_t)(mixed >> 32), .path_plus_1 = (uint32_t)path + 1};
}

/* Put a list where it will be looked for. */
static void enter(const struct ptd_paths *paths, size_t path)
{
    uint64_t mixed = ptd_mix(paths->hashes[path]), slot = mixed & paths->table_mask;
    while (paths->table[slot].path_plus_1)
        slot = (slot + 1) & paths->table_mask;
    paths->table[slot] = entry_of(mixed, path);
}

static int grow_table(struct ptd_paths *paths)
{
    uint64_t mask = 2 * paths->table_mask + 1;
    struct ptd_path_entry *table = calloc(mask + 1, sizeof *table);
    if (!table)
        return -ENOMEM;
    free(paths->table);
    paths->table = table;
    paths->table_mask = mask;
    for (size_t i = 0; i < paths->count; i++)
        enter(paths, i);
    return 0;
}

static bool same(const struct ptd_paths *paths, size_t i, const int32_t *items, uint32_t count)
{
    int32_t start = paths->starts[i];
    return paths->starts[i + 1] - start == (int32_t)count &&
           memcmp(paths->items + start, items, count * sizeof *items) == 0;
}

static int add(struct ptd_paths *paths, const int32_t *items, uint32_t count, const struct ptd_sums *sums)
{
    size_t needed = paths->item_count + count;
    int error = 0;
    if (paths->count == paths->capacity)
        error = grow_columns(paths);
    if (error == 0 && needed > paths->item_capacity)
        error = grow_items(paths, needed);
    if (error < 0)
        return error;
    size_t path = paths->count;
    memcpy(paths->items + paths->item_count, items, count * sizeof *items);
    paths->item_count = needed;
    paths->starts[path + 1] = (int32_t)needed;
    paths->length[path] = sums->blocks;
    paths->instructions[path] = sums->instructions;
    paths->count++;
    return 0;
}

void ptd_paths_rewind(struct ptd_paths *paths, size_t count, size_t next)
{
    paths->count = count;
    paths->item_count = (size_t)paths->starts[count];
    paths->next = next;
}

int ptd_paths_append(struct ptd_paths *paths, const int32_t *items, uint32_t count, const struct ptd_sums *sums,
                     int32_t *ret)
{
    bool again = paths->next < paths->count && same(paths, paths->next, items, count);
    if (!again)
        paths->next = paths->count;
    *ret = (int32_t)paths->next;
    int error = again ? 0 : add(paths, items, count, sums);
    paths->next += error == 0;
    return error;
}

int32_t ptd_paths_candidate(const struct ptd_paths *paths, uint64_t hash, uint64_t *slot)
{
    uint32_t tag = (uint32_t)(ptd_mix(hash) >> 32);
    for (; paths->table[*slot].path_plus_1; *slot = (*slot + 1) & paths->table_mask) {
        const struct ptd_path_entry *entry = &paths->table[*slot];
        if (entry->tag == tag) {
            *slot = (*slot + 1) & paths->table_mask;
            return (int32_t)(entry->path_plus_1 - 1);
        }
    }
    return -1;
}

int32_t ptd_paths_find(const struct ptd_paths *paths, const int32_t *items, uint32_t count, uint64_t hash)
{
    uint64_t slot = ptd_paths_slot(paths, hash);
    int32_t path;
    do
        path = ptd_paths_candidate(paths, hash, &slot);
    while (path >= 0 && !same(paths, (size_t)path, items, count));
    return path;
}

int ptd_paths_add(struct ptd_paths *paths, const int32_t *items, uint32_t count, uint64_t hash,
                  const struct ptd_sums *sums, int32_t *ret)
{
    int error = 2 * paths->count > paths->table_mask ? grow_table(paths) : 0;
    if (error == 0)
        error = add(paths, items, count, sums);
    if (error < 0)
        return error;
    size_t path = paths->count - 1;
    paths->hashes[path] = hash;
    enter(paths, path);
    *ret = (int32_t)path;
    return 0;
}
