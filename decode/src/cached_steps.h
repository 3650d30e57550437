/* SPDX-License-Identifier: MIT */
/*
 * The cache of the path decoder: where execution stands and the next branch bits -> what it runs through.
 *
 * A step begins at a node with up to PTD_STEP_BITS bits. Its value is the blocks executed, the return addresses it
 * takes off the return stack and puts on it, and where it ends. The same key has as many steps as there were different
 * return addresses on the stack: a look-up compares them. Filled by walking the static control flow exactly.
 */
#ifndef PTD_CACHED_STEPS_H
#define PTD_CACHED_STEPS_H

#include "api.h"
#include "cached_code.h"
#include "paths.h"

#include <stdbool.h>

enum {
    PTD_STEP_BITS = 12,
    PTD_RETURNS = 64,     /* entries of a processor's return stack */
    PTD_STEP_DEEPEST = 40 /* a step that nests deeper is not kept: whatever it pops must be what it found */
};

enum ptd_step_end {
    PTD_STEP_AT_NODE, /* execution stands at `next` */
    PTD_STEP_BRANCH,  /* an indirect branch or a far transfer: a TIP says where to, and the path is cut */
    PTD_STEP_RETURN   /* a return without a bit: a TIP says where to */
};

/* One entry of the hash table; two to a cache line. */
struct ptd_step {
    int32_t node;    /* -1: the entry is empty */
    uint16_t bits;   /* below a sentinel bit; PTD_STEP_FLUSH: on to a branch that wants a TIP */
    uint8_t used;    /* bits it uses */
    uint8_t pops;
    int32_t next;
    uint32_t list;   /* where its nodes, then its return addresses begin in `lists` */
    int32_t path;    /* its number in the tables whose stamp this is */
    uint16_t stamp;
    uint8_t pushes;
    uint8_t end : 2;  /* enum ptd_step_end */
    uint8_t peak : 6; /* how much higher the return stack gets on the way than it was */
    uint16_t length; /* blocks */
    uint16_t branches;
    uint32_t instructions;
};

enum { PTD_STEP_FLUSH = 1 << 15 };

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

struct ptd_steps {
    struct ptd_code code;
    struct ptd_step *table; /* at most half full */
    uint64_t mask;
    unsigned shift;
    size_t count;
    int32_t *lists;
    size_t list_count, list_capacity;
    uint16_t last_stamp;
    uint32_t generation; /* how often everything was dropped */
    const void *user;    /* the decoder that uses it now */
    /* the sections of the space the code is from, ascending */
    int32_t *sections;
    size_t section_count;
    /* the step being walked */
    int32_t walked[PATH_MAX_BLOCKS];
    int32_t pushed[PATH_MAX_BLOCKS];
};

/* NULL: out of memory. */
struct ptd_steps *ptd_steps_create(void);
void ptd_steps_destroy(struct ptd_steps *steps);

/*
 * The code is that of `space` from now on. Steps stay when all code they run through is there as it was. Returns 0 or
 * -ENOMEM. When not, everything is dropped: a new generation, nodes and stamps of the one before are void.
 */
int ptd_steps_enter(struct ptd_steps *steps, const struct ptd_space *space);

/* Drop everything when there is more than may be kept. Returns 0 or -ENOMEM. */
int ptd_steps_bound(struct ptd_steps *steps);

/* True: there is so much that nothing may be added before ptd_steps_bound. */
bool ptd_steps_full(const struct ptd_steps *steps);

/*
 * A number no other tables of this generation have, to mark their numbers in steps and nodes; when none is left
 * everything is dropped. 0: out of memory.
 */
uint16_t ptd_steps_stamp(struct ptd_steps *steps);

/* A new step for a key. Returns 0 and the step; -EILSEQ when the code does not fit the bits; -ENOMEM. */
int ptd_steps_walk(struct ptd_steps *steps, struct ptd_space *space, const struct ptd_returns *returns, int32_t node,
                   uint64_t bits, unsigned count, bool flush, struct ptd_step **ret);

static inline uint64_t ptd_steps_slot(const struct ptd_steps *steps, int32_t node, uint16_t bits)
{
    return (((uint64_t)(uint32_t)node << 16 | bits) * UINT64_C(0x9E3779B97F4A7C15)) >> steps->shift;
}

/* Bits as part of a key: `count` bits at the top of `bits`. */
static inline uint16_t ptd_steps_key(uint64_t bits, unsigned count, bool flush)
{
    uint64_t value = count ? bits >> (64 - count) : 0;
    return (uint16_t)(value | 1u << count | (flush ? PTD_STEP_FLUSH : 0));
}

static inline bool ptd_steps_pops_match(const struct ptd_steps *steps, const struct ptd_step *step,
                                        const struct ptd_returns *returns)
{
    const int32_t *pops = steps->lists + step->list + step->length;
    for (uint32_t i = 0; i < step->pops; i++)
        if (returns->nodes[(returns->top - 1 - i) % PTD_RETURNS] != pops[i])
            return false;
    return step->pops <= returns->depth;
}

/* The step of a key, NULL when it was not walked yet. */
static inline struct ptd_step *ptd_steps_find(const struct ptd_steps *steps, const struct ptd_returns *returns,
                                              int32_t node, uint16_t bits)
{
    uint64_t slot = ptd_steps_slot(steps, node, bits);
    for (;; slot = (slot + 1) & steps->mask) {
        struct ptd_step *step = &steps->table[slot];
        if (step->node == node && step->bits == bits && (!step->pops || ptd_steps_pops_match(steps, step, returns)))
            return step;
        if (step->node < 0)
            return NULL;
    }
}

/* Take the step's return addresses off the stack and put its own on. */
static inline void ptd_steps_returns(const struct ptd_steps *steps, const struct ptd_step *step,
                                     struct ptd_returns *returns)
{
    const int32_t *pushes = steps->lists + step->list + step->length + step->pops;
    if (returns->depth + step->peak > PTD_RETURNS) /* on the way the oldest were forgotten */
        returns->depth = PTD_RETURNS - step->peak;
    returns->top -= step->pops;
    returns->depth -= step->pops;
    for (uint32_t i = 0; i < step->pushes; i++)
        ptd_returns_push(returns, pushes[i]);
}

#endif
