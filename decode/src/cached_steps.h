/* SPDX-License-Identifier: MIT */
/*
 * The cache of the path decoder: where execution stands and the next branch bits -> what it runs through.
 *
 * A step begins at a node with up to PTD_STEP_BITS bits. Its value is the blocks executed, the return addresses it
 * takes off the return stack and puts on it, and where it ends. The same key has as many steps as there were different
 * return addresses on the stack. Whether a step takes one off at all is a matter of its key: where it does, the key's
 * entry says that and no more (PTD_STEP_POPS), and the steps lie where the key and the youngest return addresses lead:
 * as many as each of them takes at least. Further ones are compared there. Filled by walking the static control flow exactly.
 */
#ifndef PTD_CACHED_STEPS_H
#define PTD_CACHED_STEPS_H

#include "api.h"
#include "cached_code.h"
#include "cached_hops.h"
#include "joins.h"

#include <stdbool.h>

enum {
    PTD_STEP_BITS = 12,
    PTD_RETURNS = 64,     /* entries of a processor's return stack */
    PTD_STEP_DEEPEST = 40 /* a step that nests deeper is not kept: whatever it pops must be what it found */
};

enum ptd_step_end {
    PTD_STEP_AT_NODE, /* execution stands at `next` */
    PTD_STEP_BRANCH,  /* an indirect branch or a far transfer: a TIP says where to, and the run is cut */
    PTD_STEP_RETURN,  /* a return without a bit: a TIP says where to */
    PTD_STEP_POPS     /* no step: look with the youngest `pops` return addresses */
};

/* One entry of the hash table; two to a cache line, and mostly nothing else has to be looked at. */
struct ptd_step {
    int32_t node;    /* -1: the entry is empty */
    int32_t next;
    uint32_t leg;    /* its blocks */
    uint16_t bits;   /* below a sentinel bit; PTD_STEP_FLUSH: on to a branch that wants a TIP */
    uint8_t used;    /* bits it uses */
    uint8_t end;     /* enum ptd_step_end */
    uint8_t pops;    /* of PTD_STEP_POPS: as many as any of the key's steps takes */
    uint8_t pushes;
    uint8_t peak;    /* how much higher the return stack gets on the way than it was */
    bool full : 1;   /* it ends because it is as long as a path may be */
    uint8_t hashed : 7; /* return addresses that say, with the key, where it is looked for */
    union {          /* return addresses it takes off the stack, and then those it puts on it */
        int32_t few[3];
        uint32_t list; /* when they are more: where they begin in `lists` */
    } returns;
};

enum {
    PTD_STEP_FLUSH = 1 << 15,
    PTD_STEP_POPPED = 1 << 14 /* of steps that take return addresses off the stack */
};

/* Return addresses as nodes; entries beyond the 64 youngest are forgotten, as processors do. */
struct ptd_returns {
    int32_t nodes[PTD_RETURNS];
    uint32_t top;
    uint32_t depth;
};

static inline void ptd_returns_push(struct ptd_returns *returns, int32_t node)
{
    returns->nodes[returns->top++ % PTD_RETURNS] = node;
    returns->depth += returns->depth < PTD_RETURNS;
}

/*
 * All that is remembered of some code. Steps may be dropped at any time; legs and nodes, by which slices that are being
 * decoded call code, only between slices.
 */
struct ptd_steps {
    struct ptd_code code;
    struct ptd_joins joins; /* their legs are lists of nodes */
    struct ptd_step *table; /* at most five eighths full: keys that run together cost more than memory */
    uint64_t mask;
    unsigned shift;
    size_t count;
    struct ptd_hop *hops; /* 1 << PTD_HOPS_LOG */
    int32_t *lists; /* return addresses */
    size_t list_count, list_capacity;
    uint32_t stamp;   /* of the tables whose numbers nodes have */
    const void *user; /* the decoder that uses it now */
    /* the sections of the space the code is from, ascending */
    int32_t *sections;
    size_t section_count;
    /* the step being walked */
    struct ptd_run walked;
    int32_t pushed[PATH_MAX_BLOCKS];
};

/* NULL: out of memory. */
struct ptd_steps *ptd_steps_create(void);
void ptd_steps_destroy(struct ptd_steps *steps);

/* Whether all code that is remembered is in a space as it was. */
bool ptd_steps_fit(const struct ptd_steps *steps, const struct ptd_space *space);

/*
 * A slice of `space` begins. What does not fit it, or is more than may be kept, is dropped: nodes and legs of before
 * are void then. The numbers nodes have in tables are void in any case. Returns 0 or -ENOMEM.
 */
int ptd_steps_enter(struct ptd_steps *steps, const struct ptd_space *space);

/* Drop steps when there are more than may be kept; nodes and legs stay. Returns 0 or -ENOMEM. */
int ptd_steps_bound(struct ptd_steps *steps);

/* True: there is so much that nothing may be added before ptd_steps_bound or ptd_steps_enter. */
bool ptd_steps_full(const struct ptd_steps *steps);

/* Drop everything. Returns 0 or -ENOMEM. */
int ptd_steps_drop(struct ptd_steps *steps);

/* Bytes of memory, about. */
size_t ptd_steps_size(const struct ptd_steps *steps);

/* The leg a run of nodes is, added when it is new. Returns 0, -ENOMEM or -EOVERFLOW. */
int ptd_steps_leg(struct ptd_steps *steps, const struct ptd_run *run, uint32_t *ret);

/* A new step for a key. Returns 0 and the step; -EILSEQ when the code does not fit the bits; -ENOMEM. */
int ptd_steps_walk(struct ptd_steps *steps, struct ptd_space *space, const struct ptd_returns *returns, int32_t node,
                   uint64_t bits, unsigned count, bool flush, struct ptd_step **ret);

static inline uint64_t ptd_steps_hash(int32_t node, uint16_t bits)
{
    return (uint64_t)(uint32_t)node << 16 | bits;
}

/* The hash of a key and one more return address. */
static inline uint64_t ptd_steps_hash_on(uint64_t hash, int32_t popped)
{
    return (hash ^ ((uint64_t)(uint32_t)popped + 1) * UINT64_C(0xD6E8FEB86659FD93)) * UINT64_C(0xA0761D6478BD642F);
}

/* Every step waits for this: one multiplication has to do. */
static inline uint64_t ptd_steps_slot(const struct ptd_steps *steps, uint64_t hash)
{
    return hash * UINT64_C(0x9E3779B97F4A7C15) >> steps->shift;
}

/* Bits as part of a key: `count` bits at the top of `bits`. */
static inline uint16_t ptd_steps_key(uint64_t bits, unsigned count, bool flush)
{
    uint64_t value = count ? bits >> (64 - count) : 0;
    return (uint16_t)(value | 1u << count | (flush ? PTD_STEP_FLUSH : 0));
}

/* Return addresses it takes off the stack, and then those it puts on it. */
static inline const int32_t *ptd_step_returns(const struct ptd_steps *steps, const struct ptd_step *step)
{
    bool few = step->pops + step->pushes <= (int)(sizeof step->returns.few / sizeof *step->returns.few);
    return few ? step->returns.few : steps->lists + step->returns.list;
}

static inline bool ptd_steps_pops_match(const struct ptd_steps *steps, const struct ptd_step *step,
                                        const struct ptd_returns *returns)
{
    const int32_t *pops = ptd_step_returns(steps, step);
    for (uint32_t i = 0; i < step->pops; i++)
        if (returns->nodes[(returns->top - 1 - i) % PTD_RETURNS] != pops[i])
            return false;
    return step->pops <= returns->depth;
}

/* The step of a key, NULL when it was not walked yet. */
static inline struct ptd_step *ptd_steps_find(const struct ptd_steps *steps, const struct ptd_returns *returns,
                                              int32_t node, uint16_t bits)
{
    uint64_t hash = ptd_steps_hash(node, bits), slot = ptd_steps_slot(steps, hash);
    struct ptd_step *step = &steps->table[slot];
    for (; step->node != node || step->bits != bits; step = &steps->table[slot = (slot + 1) & steps->mask])
        if (step->node < 0)
            return NULL;
    if (step->end != PTD_STEP_POPS)
        return step;
    hash = ptd_steps_hash_on(hash, returns->nodes[(returns->top - 1) % PTD_RETURNS]);
    for (uint32_t i = 1; i < step->pops; i++)
        hash = ptd_steps_hash_on(hash, returns->nodes[(returns->top - 1 - i) % PTD_RETURNS]);
    bits |= PTD_STEP_POPPED;
    for (slot = ptd_steps_slot(steps, hash);; slot = (slot + 1) & steps->mask) {
        step = &steps->table[slot];
        if (step->node == node && step->bits == bits && ptd_steps_pops_match(steps, step, returns))
            return step;
        if (step->node < 0)
            return NULL;
    }
}

/* Take the step's return addresses off the stack and put its own on. */
static inline void ptd_steps_returns(const struct ptd_steps *steps, const struct ptd_step *step,
                                     struct ptd_returns *returns)
{
    const int32_t *pushes = ptd_step_returns(steps, step) + step->pops;
    if (returns->depth + step->peak > PTD_RETURNS) /* on the way the oldest were forgotten */
        returns->depth = PTD_RETURNS - step->peak;
    returns->top -= step->pops;
    returns->depth -= step->pops;
    for (uint32_t i = 0; i < step->pushes; i++)
        ptd_returns_push(returns, pushes[i]);
}

#endif
