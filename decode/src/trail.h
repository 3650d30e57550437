/* SPDX-License-Identifier: MIT */
/*
 * A memory of the runs libipt's blocks made before: a tree of blocks in which a run that came before is followed with
 * one comparison a block, and at whose nodes the leg is known that a run is that ends there. Each node guesses what
 * comes next by what came before. It only saves work: what is not in it is looked up as ever.
 */
#ifndef PTD_TRAIL_H
#define PTD_TRAIL_H

#include "blocks.h"

/* One to a cache line. */
struct ptd_trail_node {
    uint64_t ip;
    uint64_t end_ip;
    uint64_t rest;     /* ptd_trail_rest of its block; 0: of no block */
    uint64_t first_ip; /* the first successor's */
    /* The first successor, and the head of the list of others: which of the two it is takes no branch to find. */
    struct ptd_trail_node *successors[2]; /* the node of no block: there is none */
    uint32_t sibling; /* its number in that list, 0: the end */
    int32_t block;
    uint32_t leg; /* the run up to here, 0: not known yet */
    uint8_t last; /* enum ptd_class */
    bool ends;    /* successors begin runs: they have no list, for many nodes share them */
    uint8_t unused[2];
};

struct ptd_trail {
    struct ptd_trail_node *nodes; /* room for all there may be: they stay where they are. The first is of no block */
    uint32_t count;
    uint32_t *starts; /* their numbers: the first nodes of runs by hash of their block; the youngest stays */
    struct ptd_trail_node *at; /* the last of the run, or of the one before when the run is empty; of no block: nowhere */
    uint32_t length;  /* blocks of the run that were followed; PTD_TRAIL_LOST */
};

enum { PTD_TRAIL_STARTS = 1 << 14 };

#define PTD_TRAIL_LOST UINT32_MAX

/* Returns 0 or -ENOMEM; deinit also takes an object whose init failed. */
int ptd_trail_init(struct ptd_trail *trail);
void ptd_trail_deinit(struct ptd_trail *trail);

/* Go on with a block that was appended to a run of `length` blocks. */
void ptd_trail_learn(struct ptd_trail *trail, const struct ptd_block_hit *hit, uint32_t length);

static inline uint64_t ptd_trail_rest(int32_t isid, uint16_t instructions, uint8_t mode)
{
    return (uint64_t)(uint32_t)isid << 32 | (uint64_t)instructions << 8 | mode;
}

/* The node of a block after those of the run, NULL: it has to be looked for. */
static inline struct ptd_trail_node *ptd_trail_guess(const struct ptd_trail *trail, const struct pt_block *block,
                                                     uint32_t length)
{
    const struct ptd_trail_node *at = trail->at;
    struct ptd_trail_node *node = at->successors[block->ip != at->first_ip];
    bool same = node->ip == block->ip && node->end_ip == block->end_ip &&
                node->rest == ptd_trail_rest(block->isid, block->ninsn, (uint8_t)block->mode);
    return same && trail->length == length && at->ends == !length ? node : NULL;
}

/* Go on to a node that was guessed. */
static inline void ptd_trail_follow(struct ptd_trail *trail, struct ptd_trail_node *node)
{
    __builtin_prefetch(node->successors[0]); /* while libipt is about the next block */
    __builtin_prefetch(node->successors[1]);
    trail->at = node;
    trail->length++;
}

/* The node at which a run of `length` blocks ends, NULL: it was not followed. */
static inline struct ptd_trail_node *ptd_trail_end(struct ptd_trail *trail, uint32_t length)
{
    return trail->at != trail->nodes && trail->length == length ? trail->at : NULL;
}

/* The run is over. */
static inline void ptd_trail_cut(struct ptd_trail *trail, uint32_t length)
{
    if (trail->length != length)
        trail->at = trail->nodes;
    trail->length = 0;
}

#endif
