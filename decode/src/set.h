/* SPDX-License-Identifier: MIT */
/*
 * Distinct entries, numbered densely in the order they were added. Part of an entry may change as long as `hash` and
 * `same` do not look at it. All zero but for width, hash and same: empty. Owns its memory; not thread-safe.
 */
#ifndef PTD_SET_H
#define PTD_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ptd_set {
    size_t width; /* bytes of an entry */
    uint64_t (*hash)(const void *entry);
    bool (*same)(const void *one, const void *other);
    unsigned char *entries;
    size_t count, capacity;
    uint32_t *table; /* number + 1 by hash, 0 empty; at most half full */
    uint64_t table_mask;
};

void ptd_set_deinit(struct ptd_set *set);

/* The number of an entry, copied when it is new; -ENOMEM. */
int ptd_set_add(struct ptd_set *set, const void *entry);

/* The entry of that number, NULL when there is none; entries move when others are added. */
void *ptd_set_at(const struct ptd_set *set, int32_t number);

#endif
