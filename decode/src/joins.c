/* SPDX-License-Identifier: MIT */
/*
 * Joined paths. How long a leg may get trades rows for distinct legs. Twelve decisions suit ordinary programs; code
 * that branches at random would make every run a new leg, so the limit falls as more legs were executed, which bounds
 * their memory, and MOST_JOINED that of what is made of them. Owns all its memory; not thread-safe.
 */
#define _GNU_SOURCE /* madvise */
#include "joins.h"
#include "grow.h"
#include "huge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    FIRST_NODES = 1024,
    MOST_JOINED = 1 << 19,
    MOST_LEGS = 8 /* in a path: more make fewer rows, but a dictionary that outgrows them */
};

/* From how many legs on a run is cut after how many decisions. */
static const struct {
    size_t legs;
    uint32_t decisions;
} LIMITS[] = {{0, 12}, {1 << 19, 8}, {3 << 18, 6}, {1 << 20, 4}, {5 << 18, 2}, {3 << 19, 1}};

static uint32_t decisions_limit(size_t legs)
{
    uint32_t decisions = 1;
    for (size_t i = 0; i < sizeof LIMITS / sizeof *LIMITS && legs >= LIMITS[i].legs; i++)
        decisions = LIMITS[i].decisions;
    return decisions;
}

/* More room for paths; `at` stays the one it is. */
static int grow_nodes(struct ptd_joins *joins, struct ptd_join **nodes, uint32_t *capacity)
{
    uint32_t larger = *capacity ? 2 * *capacity : FIRST_NODES;
    if (larger > INT32_MAX / 2)
        return -EOVERFLOW;
    bool inside = joins->at >= *nodes && joins->at < *nodes + *capacity;
    size_t at = inside ? (size_t)(joins->at - *nodes) : 0;
    struct ptd_join *memory = ptd_huge_alloc(larger * sizeof *memory);
    if (!memory)
        return -ENOMEM;
    if (*capacity)
        memcpy(memory, *nodes, *capacity * sizeof *memory);
    free(*nodes);
    *nodes = memory;
    if (inside)
        joins->at = *nodes + at;
    *capacity = larger;
    return 0;
}

int ptd_joins_init(struct ptd_joins *joins)
{
    memset(joins, 0, sizeof *joins);
    joins->at = &joins->none;
    int error = ptd_paths_init(&joins->legs, 1);
    if (error < 0 || grow_nodes(joins, &joins->roots, &joins->root_capacity) < 0 ||
        grow_nodes(joins, &joins->joined, &joins->joined_capacity) < 0)
        return -ENOMEM;
    ptd_joins_begin(joins, 0);
    return 0;
}

void ptd_joins_deinit(struct ptd_joins *joins)
{
    ptd_paths_deinit(&joins->legs);
    free(joins->roots);
    free(joins->joined);
    free(joins->seen);
    memset(joins, 0, sizeof *joins);
}

void ptd_joins_begin(struct ptd_joins *joins, int64_t seq)
{
    for (size_t i = 0; i < joins->seen_count; i++) {
        struct ptd_join *root = &joins->roots[joins->seen[i]];
        root->expected = root->child = root->path = 0;
        root->lead = 0;
    }
    joins->seen_count = 0;
    joins->joined_count = 1;
    joins->at = &joins->none;
    joins->decisions_limit = decisions_limit(0);
    joins->seq = seq;
    joins->instructions = joins->branches = 0;
}

/* ---- legs ---- */

uint32_t ptd_joins_find(const struct ptd_joins *joins, const struct ptd_run *run, uint64_t *ret_hash)
{
    *ret_hash = ptd_path_hash(run->blocks, run->length);
    int32_t number = ptd_paths_find(&joins->legs, run->blocks, run->length, *ret_hash);
    return number < 0 ? 0 : joins->roots[number + 1].leg;
}

int ptd_joins_add_leg(struct ptd_joins *joins, const struct ptd_run *run, uint64_t hash, const struct ptd_sums *sums,
                      enum ptd_class last, uint32_t *ret)
{
    int32_t number;
    int error = joins->legs.count + 1 >= joins->root_capacity
                    ? grow_nodes(joins, &joins->roots, &joins->root_capacity) : 0;
    if (error == 0)
        error = ptd_paths_add(&joins->legs, run->blocks, run->length, hash, sums, &number);
    if (error < 0)
        return error;
    bool over = last == PTD_SYSCALL || last == PTD_FAR;
    *ret = ((uint32_t)number + 1) | (over ? PTD_JOIN_OVER : 0);
    joins->roots[number + 1] = (struct ptd_join){
        .leg = *ret,
        .instructions = (uint32_t)sums->instructions,
        .branches = (uint32_t)sums->branches,
        .blocks = (uint16_t)sums->blocks,
        .legs = 1,
    };
    return 0;
}

/* ---- paths ---- */

static int note_seen(struct ptd_joins *joins, uint32_t root)
{
    if (joins->seen_count == joins->seen_capacity) {
        size_t capacity = joins->seen_capacity ? 2 * joins->seen_capacity : FIRST_NODES;
        if (ptd_grow(&joins->seen, capacity, sizeof *joins->seen) < 0)
            return -ENOMEM;
        joins->seen_capacity = capacity;
    }
    joins->seen[joins->seen_count++] = root;
    joins->decisions_limit = decisions_limit(joins->seen_count);
    return 0;
}

/* A leg is executed for the first time: the tables get to know it. */
static int number_leg(struct ptd_joins *joins, struct ptd_tables *tables, struct ptd_join *root)
{
    int32_t blocks[PATH_MAX_BLOCKS], number;
    const int32_t *items = ptd_joins_items(joins, root->leg);
    struct ptd_sums sums = {.blocks = root->blocks, .instructions = (int32_t)root->instructions};
    int error = note_seen(joins, root->leg & ~(uint32_t)PTD_JOIN_OVER);
    if (error == 0 && joins->blocks_of) {
        error = joins->blocks_of(joins->owner, items, root->blocks, blocks);
        items = blocks;
    }
    if (error == 0)
        error = ptd_paths_append(&tables->legs, items, root->blocks, &sums, &number);
    if (error == 0)
        root->link = (uint32_t)number;
    return error;
}

/* Different legs may come to the same blocks: the assembler finds out. */
int ptd_joins_number(struct ptd_joins *joins, struct ptd_tables *tables)
{
    struct ptd_join *at = joins->at;
    struct ptd_sums sums = {.blocks = at->blocks, .instructions = (int32_t)at->instructions};
    int32_t legs[MOST_LEGS], number;
    const struct ptd_join *node = at;
    int error = at->legs == 1 ? number_leg(joins, tables, at) : 0;
    for (; node->legs > 2; node = &joins->joined[node->link])
        legs[node->legs - 1] = (int32_t)ptd_joins_root(joins, node->leg)->link;
    if (node->legs == 2) {
        legs[1] = (int32_t)ptd_joins_root(joins, node->leg)->link;
        node = ptd_joins_root(joins, node->link);
    }
    legs[0] = (int32_t)node->link;
    if (error == 0)
        error = ptd_paths_append(&tables->paths, legs, at->legs, &sums, &number);
    if (error == 0)
        at->path = (uint32_t)number + 1;
    return error;
}

int ptd_joins_join(struct ptd_joins *joins)
{
    const struct ptd_join *last = ptd_joins_root(joins, joins->at->expected);
    joins->at->lead = 0;
    if (joins->at->legs == MOST_LEGS || joins->at->blocks + last->blocks > PATH_MAX_BLOCKS ||
        joins->joined_count > MOST_JOINED)
        return 0;
    if (joins->joined_count == joins->joined_capacity) {
        int error = grow_nodes(joins, &joins->joined, &joins->joined_capacity);
        if (error < 0)
            return error;
    }
    struct ptd_join *at = joins->at;
    joins->joined[joins->joined_count] = (struct ptd_join){
        .leg = at->expected,
        .instructions = at->instructions + last->instructions,
        .branches = at->branches + last->branches,
        .link = at->legs > 1 ? (uint32_t)(at - joins->joined) : at->leg & ~(uint32_t)PTD_JOIN_OVER,
        .blocks = (uint16_t)(at->blocks + last->blocks),
        .legs = (uint8_t)(at->legs + 1),
    };
    at->child = joins->joined_count++;
    return 0;
}

int ptd_joins_end(struct ptd_joins *joins, struct ptd_tables *tables, int32_t *ret)
{
    struct ptd_join *at = joins->at;
    if (at == &joins->none)
        return 0;
    int error = at->path ? 0 : ptd_joins_number(joins, tables);
    *ret = (int32_t)at->path - 1;
    joins->seq += at->blocks;
    joins->instructions += at->instructions;
    joins->branches += at->branches;
    joins->at = &joins->none;
    return error < 0 ? error : 1;
}
