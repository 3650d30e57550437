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

/* Where a block lies and how far it goes. */
struct identity {
    int32_t image;
    int64_t offset;
    uint64_t ip;
    uint64_t last_ip;
    int32_t instructions;
    uint8_t mode;
};

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

static int same(const struct ptd_blocks *blocks, size_t i, const struct identity *identity)
{
    return blocks->ip[i] == identity->ip && blocks->last_ip[i] == identity->last_ip &&
           blocks->offset[i] == identity->offset && blocks->image[i] == identity->image &&
           blocks->instructions[i] == identity->instructions && blocks->mode[i] == identity->mode;
}

static int add(struct ptd_blocks *blocks, const struct identity *identity)
{
    if (blocks->count == blocks->capacity) {
        int error = grow_columns(blocks);
        if (error < 0)
            return error;
    }
    size_t i = blocks->count++;
    blocks->image[i] = identity->image;
    blocks->offset[i] = identity->offset;
    blocks->ip[i] = identity->ip;
    blocks->last_ip[i] = identity->last_ip;
    blocks->instructions[i] = identity->instructions;
    blocks->mode[i] = identity->mode;
    return 0;
}

static uint64_t slot_of(const struct ptd_blocks *blocks, const struct identity *identity)
{
    return hash_of(identity->ip, identity->last_ip, identity->offset, (uint32_t)identity->instructions,
                   identity->image) & blocks->table_mask;
}

/* The number of a block. Returns 1 when it is new, its size and class not yet set; 0 or negative errno. */
static int find_or_add(struct ptd_blocks *blocks, const struct identity *identity, int32_t *ret)
{
    if (2 * blocks->count > blocks->table_mask) {
        int error = grow_table(blocks);
        if (error < 0)
            return error;
    }
    uint64_t slot = slot_of(blocks, identity);
    for (; blocks->table[slot]; slot = (slot + 1) & blocks->table_mask) {
        if (same(blocks, blocks->table[slot] - 1, identity)) {
            *ret = (int32_t)(blocks->table[slot] - 1);
            return 0;
        }
    }
    int error = add(blocks, identity);
    if (error < 0)
        return error;
    blocks->table[slot] = (uint32_t)blocks->count;
    *ret = (int32_t)(blocks->count - 1);
    return 1;
}

static struct identity identity_of(const struct ptd_images *images, int isid, uint64_t ip, uint64_t last_ip,
                                   int32_t instructions, uint8_t mode)
{
    const struct ptd_section *section = ptd_images_section(images, isid);
    struct identity identity = {
        .image = -1, .ip = ip, .last_ip = last_ip, .instructions = instructions, .mode = mode};
    if (section) {
        identity.image = section->image;
        identity.offset = (int64_t)(ip - section->address + section->offset);
    }
    return identity;
}

int ptd_blocks_intern_straight(struct ptd_blocks *blocks, const struct ptd_images *images, uint64_t ip,
                               const struct ptd_straight *straight, int32_t *ret)
{
    struct identity identity = identity_of(images, straight->isid, ip, straight->last_ip,
                                           (int32_t)straight->instructions, (uint8_t)ptem_64bit);
    int added = find_or_add(blocks, &identity, ret);
    if (added > 0) {
        blocks->size[*ret] = (int32_t)(straight->end - ip);
        blocks->last[*ret] = (int8_t)straight->last;
    }
    return added < 0 ? added : 0;
}

void ptd_blocks_truncate(struct ptd_blocks *blocks, size_t count)
{
    /* Last in, first out: nothing was put behind an entry that is taken away. */
    while (blocks->count > count) {
        size_t i = --blocks->count;
        struct identity identity = {.image = blocks->image[i], .offset = blocks->offset[i], .ip = blocks->ip[i],
                                    .last_ip = blocks->last_ip[i], .instructions = blocks->instructions[i],
                                    .mode = blocks->mode[i]};
        uint64_t slot = slot_of(blocks, &identity);
        while (blocks->table[slot] != i + 1)
            slot = (slot + 1) & blocks->table_mask;
        blocks->table[slot] = 0;
    }
}

/* A block's size and the class of its last instruction, by decoding that instruction. */
static void describe(struct ptd_space *space, const struct pt_block *block, int32_t *size, int8_t *last)
{
    struct ptd_walk walk;
    if (ptd_walker_walk(ptd_space_walker(space), block->end_ip, block->mode, 1, NULL, &walk) < 0) {
        *size = (int32_t)(block->end_ip - block->ip); /* not decodable on its own: up to the last instruction */
        *last = PTD_OTHER;
        return;
    }
    *size = (int32_t)(walk.end - block->ip);
    *last = (int8_t)walk.last;
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
    struct identity identity = identity_of(ptd_space_images(space), block->isid, block->ip, block->end_ip,
                                           block->ninsn, (uint8_t)block->mode);
    int32_t number;
    int error = find_or_add(blocks, &identity, &number);
    if (error > 0) {
        describe(space, block, &blocks->size[number], &blocks->last[number]);
        error = 0;
    }
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
