/* SPDX-License-Identifier: MIT */
/* Distinct basic blocks, numbered densely in the order they were first executed. */
#ifndef PTD_BLOCKS_H
#define PTD_BLOCKS_H

#include "api.h"
#include "hash.h"
#include "images.h"

#include <intel-pt.h>

enum { BLOCK_CACHE_BITS = 15 };

/* What makes a block the same block again, and what the hot loop wants to know of it. */
struct ptd_block_hit {
    uint64_t ip;
    uint64_t end_ip;
    int32_t isid;
    uint16_t instructions;
    uint8_t mode;
    uint8_t last; /* enum ptd_class */
    int32_t block;
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
    /* direct-mapped by address: answers nearly every time */
    struct ptd_block_hit *cache;
};

/* Returns 0 or -ENOMEM; deinit also takes an object whose init failed. */
int ptd_blocks_init(struct ptd_blocks *blocks);
void ptd_blocks_deinit(struct ptd_blocks *blocks);

/*
 * The number of a block libipt decoded in `space`; `ret` borrows the cache's entry until the next call.
 * Returns 0, -ENOMEM or -EOVERFLOW.
 */
int ptd_blocks_intern_slow(struct ptd_blocks *blocks, struct ptd_space *space, const struct pt_block *block,
                           struct ptd_block_hit *ret);

static inline int ptd_blocks_intern(struct ptd_blocks *blocks, struct ptd_space *space, const struct pt_block *block,
                                    const struct ptd_block_hit **ret)
{
    struct ptd_block_hit *hit = &blocks->cache[ptd_mix(block->ip) & ((1u << BLOCK_CACHE_BITS) - 1)];
    *ret = hit;
    if (hit->ip == block->ip && hit->end_ip == block->end_ip && hit->isid == block->isid &&
        hit->instructions == block->ninsn && hit->mode == (uint8_t)block->mode)
        return 0;
    return ptd_blocks_intern_slow(blocks, space, block, hit);
}

#endif
