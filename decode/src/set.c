/* SPDX-License-Identifier: MIT */
/* Distinct entries in an array, and a hash table of their numbers. See set.h. */
#include "set.h"

#include "grow.h"

#include <string.h>

enum { FIRST = 64 };

void ptd_set_deinit(struct ptd_set *set)
{
    free(set->entries);
    free(set->table);
}

void *ptd_set_at(const struct ptd_set *set, int32_t number)
{
    return number < 0 || (size_t)number >= set->count ? NULL : set->entries + (size_t)number * set->width;
}

/* Where the number of an entry is in the table, or would be. */
static uint64_t slot_of(const struct ptd_set *set, const void *entry)
{
    uint64_t slot = set->hash(entry) & set->table_mask;
    while (set->table[slot] && !set->same(ptd_set_at(set, (int32_t)set->table[slot] - 1), entry))
        slot = (slot + 1) & set->table_mask;
    return slot;
}

static int grow_table(struct ptd_set *set)
{
    uint64_t size = set->table ? 2 * (set->table_mask + 1) : FIRST;
    uint32_t *table = calloc(size, sizeof *table);
    if (!table)
        return -ENOMEM;
    free(set->table);
    set->table = table;
    set->table_mask = size - 1;
    for (size_t i = 0; i < set->count; i++)
        table[slot_of(set, ptd_set_at(set, (int32_t)i))] = (uint32_t)i + 1;
    return 0;
}

static int make_room(struct ptd_set *set)
{
    if (set->count == set->capacity) {
        size_t capacity = set->capacity ? 2 * set->capacity : FIRST;
        if (capacity > INT32_MAX || ptd_grow(&set->entries, capacity, set->width) < 0)
            return -ENOMEM;
        set->capacity = capacity;
    }
    return !set->table || 2 * set->count > set->table_mask ? grow_table(set) : 0;
}

int ptd_set_add(struct ptd_set *set, const void *entry)
{
    int error = make_room(set);
    if (error < 0)
        return error;
    uint64_t slot = slot_of(set, entry);
    if (!set->table[slot]) {
        memcpy(set->entries + set->count * set->width, entry, set->width);
        set->table[slot] = (uint32_t)++set->count;
    }
    return (int)set->table[slot] - 1;
}
