/* SPDX-License-Identifier: MIT */
/*
 * Interning of basic blocks.
 *
 * A block is what executed between an entry and the first branch, or an event. Its identity is where it lies
 * (image, offset in the image's file), the address it ran at, and how far it went (instructions, last address), so
 * that a flow of blocks gives exact addresses. Its size and the class of its last instruction are looked up once,
 * when it is met first. Owns all its memory; not thread-safe.
 */
#include "blocks.h"
#include "grow.h"
#include "walker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 1024 };

int ptd_blocks_init(struct ptd_blocks *blocks)
{
    memset(blocks, 0, sizeof *blocks);
    blocks->table_mask = 4 * FIRST_CAPACITY - 1;
    blocks->table = calloc(blocks->table_mask + 1, sizeof *blocks->table);
    blocks->hits_mask = 4 * FIRST_CAPACITY - 1;
    blocks->hits = calloc(blocks->hits_mask + 1, sizeof *blocks->hits);
    return blocks->table && blocks->hits ? 0 : -ENOMEM;
}

void ptd_blocks_deinit(struct ptd_blocks *blocks)
{
    free(blocks->image);
    free(blocks->offset);
    free(blocks->ip);
    free(blocks->last_ip);
    free(blocks->size);
    free(blocks->instructions);
    free(blocks->last);
    free(blocks->mode);
    free(blocks->table);
    free(blocks->hits);
}

static int grow_columns(struct ptd_blocks *blocks)
{
    size_t capacity = blocks->capacity ? 2 * blocks->capacity : FIRST_CAPACITY;
    if (capacity > INT32_MAX)
        return -EOVERFLOW;
    if (ptd_grow(&blocks->image, capacity, sizeof *blocks->image) < 0 ||
        ptd_grow(&blocks->offset, capacity, sizeof *blocks->offset) < 0 ||
        ptd_grow(&blocks->ip, capacity, sizeof *blocks->ip) < 0 ||
        ptd_grow(&blocks->last_ip, capacity, sizeof *blocks->last_ip) < 0 ||
        ptd_grow(&blocks->size, capacity, sizeof *blocks->size) < 0 ||
        ptd_grow(&blocks->instructions, capacity, sizeof *blocks->instructions) < 0 ||
        ptd_grow(&blocks->last, capacity, sizeof *blocks->last) < 0 ||
        ptd_grow(&blocks->mode, capacity, sizeof *blocks->mode) < 0)
        return -ENOMEM;
    blocks->capacity = capacity;
    return 0;
}

static uint64_t hash_of(uint64_t ip, uint64_t last_ip, int64_t offset, uint32_t instructions, int32_t image)
{
    uint64_t hash = ptd_mix2(ip, last_ip);
    hash = ptd_mix2(hash, (uint64_t)offset);
    return ptd_mix2(hash, (uint64_t)(uint32_t)image << 32 | instructions);
}

static int grow_table(struct ptd_blocks *blocks)
{
    uint64_t mask = 2 * blocks->table_mask + 1;
    uint32_t *table = calloc(mask + 1, sizeof *table);
    if (!table)
        return -ENOMEM;
    for (size_t i = 0; i < blocks->count; i++) {
        uint64_t slot = hash_of(blocks->ip[i], blocks->last_ip[i], blocks->offset[i],
                                (uint32_t)blocks->instructions[i], blocks->image[i]) & mask;
        while (table[slot])
            slot = (slot + 1) & mask;
        table[slot] = (uint32_t)i + 1;
    }
    free(blocks->table);
    blocks->table = table;
    blocks->table_mask = mask;
    return 0;
}

static int same(const struct ptd_blocks *blocks, size_t i, const struct ptd_block_row *row)
{
    return blocks->ip[i] == row->ip && blocks->last_ip[i] == row->last_ip && blocks->offset[i] == row->offset &&
           blocks->image[i] == row->image && blocks->instructions[i] == row->instructions &&
           blocks->mode[i] == row->mode;
}

/* A block's size and the class of its last instruction, by decoding that instruction. */
static void describe(struct ptd_space *space, struct ptd_block_row *row)
{
    struct ptd_walk walk;
    if (ptd_walker_walk(ptd_space_walker(space), row->last_ip, (enum pt_exec_mode)row->mode, 1, NULL, &walk) < 0) {
        row->size = (int32_t)(row->last_ip - row->ip); /* not decodable on its own: up to the last instruction */
        row->last = PTD_OTHER;
        return;
    }
    row->size = (int32_t)(walk.end - row->ip);
    row->last = (int8_t)walk.last;
}

static int add(struct ptd_blocks *blocks, const struct ptd_block_row *row)
{
    if (blocks->count == blocks->capacity) {
        int error = grow_columns(blocks);
        if (error < 0)
            return error;
    }
    size_t i = blocks->count;
    blocks->image[i] = row->image;
    blocks->offset[i] = row->offset;
    blocks->ip[i] = row->ip;
    blocks->last_ip[i] = row->last_ip;
    blocks->size[i] = row->size;
    blocks->instructions[i] = row->instructions;
    blocks->last[i] = row->last;
    blocks->mode[i] = row->mode;
    blocks->count++;
    return 0;
}

/* Find a block, or add it; one that is new is described first when `space` is not NULL. */
static int find_or_add(struct ptd_blocks *blocks, struct ptd_space *space, struct ptd_block_row *row, int32_t *ret)
{
    if (2 * blocks->count > blocks->table_mask) {
        int error = grow_table(blocks);
        if (error < 0)
            return error;
    }
    uint64_t slot = hash_of(row->ip, row->last_ip, row->offset, (uint32_t)row->instructions, row->image) &
                    blocks->table_mask;
    for (; blocks->table[slot]; slot = (slot + 1) & blocks->table_mask) {
        if (same(blocks, blocks->table[slot] - 1, row)) {
            *ret = (int32_t)(blocks->table[slot] - 1);
            return 0;
        }
    }
    if (space)
        describe(space, row);
    int error = add(blocks, row);
    if (error < 0)
        return error;
    blocks->table[slot] = (uint32_t)blocks->count;
    *ret = (int32_t)(blocks->count - 1);
    return 0;
}

void ptd_blocks_truncate(struct ptd_blocks *blocks, size_t count)
{
    /* Last in, first out: nothing was put behind an entry that is taken away. */
    while (blocks->count > count) {
        size_t i = --blocks->count;
        uint64_t slot = hash_of(blocks->ip[i], blocks->last_ip[i], blocks->offset[i],
                                (uint32_t)blocks->instructions[i], blocks->image[i]) & blocks->table_mask;
        while (blocks->table[slot] != i + 1)
            slot = (slot + 1) & blocks->table_mask;
        blocks->table[slot] = 0;
    }
}

void ptd_blocks_fetch_row(const struct ptd_blocks *blocks, const struct ptd_block_row *row)
{
    __builtin_prefetch(&blocks->table[hash_of(row->ip, row->last_ip, row->offset, (uint32_t)row->instructions,
                                              row->image) & blocks->table_mask]);
}

void ptd_blocks_clear(struct ptd_blocks *blocks)
{
    memset(blocks->table, 0, (blocks->table_mask + 1) * sizeof *blocks->table);
    memset(blocks->hits, 0, (blocks->hits_mask + 1) * sizeof *blocks->hits);
    blocks->count = blocks->hits_count = 0;
    blocks->last_hit = 0;
}

void ptd_blocks_enter_round(struct ptd_blocks *blocks, uint32_t round)
{
    if (blocks->round == round)
        return;
    blocks->round = round;
    memset(blocks->hits, 0, (blocks->hits_mask + 1) * sizeof *blocks->hits);
    blocks->hits_count = 0;
    blocks->last_hit = 0;
}

int ptd_blocks_intern_row(struct ptd_blocks *blocks, const struct ptd_block_row *row, int32_t *ret)
{
    struct ptd_block_row copy = *row;
    return find_or_add(blocks, NULL, &copy, ret);
}

static struct ptd_block_hit *free_entry(struct ptd_block_hit *hits, uint64_t mask, uint64_t ip, uint64_t end_ip)
{
    uint64_t slot = ptd_block_hash(ip, end_ip) & mask;
    while (hits[slot].instructions)
        slot = (slot + 1) & mask;
    return &hits[slot];
}

static int grow_hits(struct ptd_blocks *blocks)
{
    uint64_t mask = 2 * blocks->hits_mask + 1;
    struct ptd_block_hit *hits = calloc(mask + 1, sizeof *hits);
    if (!hits)
        return -ENOMEM;
    for (uint64_t i = 0; i <= blocks->hits_mask; i++) {
        const struct ptd_block_hit *old = &blocks->hits[i];
        if (old->instructions)
            *free_entry(hits, mask, old->ip, old->end_ip) = *old;
    }
    free(blocks->hits);
    blocks->hits = hits;
    blocks->hits_mask = mask;
    return 0;
}

int ptd_blocks_intern_new(struct ptd_blocks *blocks, struct ptd_space *space, const struct pt_block *block,
                          const struct ptd_block_hit **ret)
{
    const struct ptd_section *section =
        ptd_images_section(ptd_space_images(space), ptd_space_section(space, block->isid));
    struct ptd_block_row row = {
        .image = -1,
        .ip = block->ip,
        .last_ip = block->end_ip,
        .instructions = block->ninsn,
        .mode = (uint8_t)block->mode,
    };
    if (section) {
        row.image = section->image;
        row.offset = (int64_t)(block->ip - section->address + section->offset);
    }
    int32_t number;
    int error = find_or_add(blocks, space, &row, &number);
    if (error == 0 && 2 * blocks->hits_count > blocks->hits_mask)
        error = grow_hits(blocks);
    if (error < 0)
        return error;
    struct ptd_block_hit *hit = free_entry(blocks->hits, blocks->hits_mask, block->ip, block->end_ip);
    *hit = (struct ptd_block_hit){
        .ip = block->ip,
        .end_ip = block->end_ip,
        .isid = block->isid,
        .instructions = block->ninsn,
        .mode = (uint8_t)block->mode,
        .last = (uint8_t)blocks->last[number],
        .block = number,
    };
    blocks->hits_count++;
    *ret = hit;
    return 0;
}
