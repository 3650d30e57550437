/* SPDX-License-Identifier: MIT */
/* Distinct basic blocks, numbered densely in the order they were first executed. */
#ifndef PTD_BLOCKS_H
#define PTD_BLOCKS_H

#include "api.h"
#include "hash.h"
#include "images.h"

#include <intel-pt.h>
#include <stdbool.h>

/*
 * A block as libipt gives it, and what the hot loop wants to know of it. Entries of a hash table: all that is compared
 * lies in one cache line. The same block has several entries when the same code is in several sections.
 */
struct ptd_block_hit {
    uint64_t ip;
    uint64_t end_ip;
    int32_t isid;
    uint16_t instructions; /* 0: the entry is empty */
    uint8_t mode;
    uint8_t last; /* enum ptd_class */
    int32_t block;
    uint32_t next; /* where the entry lies that was asked for next, the last time: a guess */
};

struct ptd_blocks {
    /* columns */
    int32_t *image;
    int64_t *offset;
    uint64_t *ip;
    uint64_t *last_ip;
    int32_t *size;
    int32_t *instructions;
    int8_t *last;
    uint8_t *mode;
    size_t count;
    size_t capacity;
    /* block + 1 by hash of the identity, 0 empty; at most half full */
    uint32_t *table;
    uint64_t table_mask;
    /* what libipt gave before; at most half full */
    struct ptd_block_hit *hits;
    uint64_t hits_mask;
    size_t hits_count;
    uint32_t round;    /* whose isids they have (ptd_space_round) */
    uint64_t last_hit; /* where the entry lies that was asked for last: a guess after the table has grown */
};

/* A block as the columns hold it. */
struct ptd_block_row {
    int32_t image;
    int64_t offset;
    uint64_t ip;
    uint64_t last_ip;
    int32_t size;
    int32_t instructions;
    int8_t last;
    uint8_t mode;
};

/* Returns 0 or -ENOMEM; deinit also takes an object whose init failed. */
int ptd_blocks_init(struct ptd_blocks *blocks);
void ptd_blocks_deinit(struct ptd_blocks *blocks);

/* Number and remember a block that is in no entry yet. Returns 0, -ENOMEM or -EOVERFLOW. */
int ptd_blocks_intern_new(struct ptd_blocks *blocks, struct ptd_space *space, const struct pt_block *block,
                          const struct ptd_block_hit **ret);

/* Begin to fetch what ptd_blocks_intern_row will look at. */
void ptd_blocks_fetch_row(const struct ptd_blocks *blocks, const struct ptd_block_row *row);

/* Forget all blocks; memory stays for those to come. */
void ptd_blocks_clear(struct ptd_blocks *blocks);

/* What libipt gives is of spaces of that round from now on: in another one isids mean other sections. */
void ptd_blocks_enter_round(struct ptd_blocks *blocks, uint32_t round);

/* The number of a block that was decoded and described elsewhere. Returns 0, -ENOMEM or -EOVERFLOW. */
int ptd_blocks_intern_row(struct ptd_blocks *blocks, const struct ptd_block_row *row, int32_t *ret);

/* Forget the youngest blocks but `count`; nothing that came from ptd_blocks_intern may be among them. */
void ptd_blocks_truncate(struct ptd_blocks *blocks, size_t count);

static inline uint64_t ptd_block_hash(uint64_t ip, uint64_t end_ip)
{
    return ptd_mix(ip + (end_ip << 20));
}

static inline bool ptd_block_hit_is(const struct ptd_block_hit *hit, const struct pt_block *block)
{
    return hit->ip == block->ip && hit->end_ip == block->end_ip && hit->isid == block->isid &&
           hit->instructions == block->ninsn && hit->mode == (uint8_t)block->mode;
}

/* The entry of a block libipt decoded, good until the next one is made; NULL: there is none yet. */
static inline const struct ptd_block_hit *ptd_blocks_find(struct ptd_blocks *blocks, const struct pt_block *block)
{
    uint64_t before = blocks->last_hit, slot = blocks->hits[before].next;
    if (!ptd_block_hit_is(&blocks->hits[slot], block)) {
        slot = ptd_block_hash(block->ip, block->end_ip) & blocks->hits_mask;
        for (; !ptd_block_hit_is(&blocks->hits[slot], block); slot = (slot + 1) & blocks->hits_mask)
            if (!blocks->hits[slot].instructions)
                return NULL;
        blocks->hits[before].next = (uint32_t)slot;
    }
    blocks->last_hit = slot;
    return &blocks->hits[slot];
}

/*
 * The number and class of a block libipt decoded in `space`; `ret` borrows an entry until the next call.
 * Returns 0, -ENOMEM or -EOVERFLOW.
 */
static inline int ptd_blocks_intern(struct ptd_blocks *blocks, struct ptd_space *space, const struct pt_block *block,
                                    const struct ptd_block_hit **ret)
{
    *ret = ptd_blocks_find(blocks, block);
    return *ret ? 0 : ptd_blocks_intern_new(blocks, space, block, ret);
}

#endif
