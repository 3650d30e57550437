/* SPDX-License-Identifier: MIT */
/*
 * Longer paths where code repeats itself.
 *
 * What a run is cut into (after so many decisions, at indirect branches and far transfers) are legs. A leg is a path;
 * where a path was followed by the same leg again and again, the two together become one from then on. So code that
 * repeats runs through few long paths, code that does not through many short ones, and a dictionary of paths does not
 * grow by what happens once. What is joined depends on the legs alone, so that all decoders of a slice agree.
 *
 * Legs may outlive slices (ptd_joins_begin): what they are is remembered, that they were executed is not.
 */
#ifndef PTD_JOINS_H
#define PTD_JOINS_H

#include "paths.h"
#include "tables.h"

#include <stdbool.h>

enum {
    PTD_JOIN_OVER = 1u << 31, /* execution leaves what is traced, or may: a path ends behind that leg */
    PTD_JOIN_LEAD = 16        /* by so much a leg has to lead before it is joined on: a few times may be chance */
};

/*
 * A path. Each goes on in one way at most, with the leg that leads. Two to a cache line, and nothing else has to be
 * looked at on the way from leg to leg: with much code most of it is not in the processor's caches.
 */
struct ptd_join {
    uint32_t leg;      /* its last: number + 1, and PTD_JOIN_OVER */
    uint32_t expected; /* the leg after it: its child's, or else one that came of late; 0 none */
    uint32_t child;    /* this and the leg expected, in `joined`; 0 none */
    uint32_t path;     /* its number in the tables + 1, 0: it was not executed as a path yet */
    uint32_t instructions;
    uint32_t branches;
    uint32_t link; /* one leg: its number in the tables; two: the first; more: the path without the last */
    uint16_t blocks;
    uint8_t lead; /* by how much the expected leg came more often than others */
    uint8_t legs;
};

/* Blocks, in the numbers of the tables, of a leg's items. Returns 0 or negative errno. */
typedef int ptd_blocks_of(void *owner, const int32_t *items, uint32_t count, int32_t *ret);

struct ptd_joins {
    struct ptd_paths legs;     /* lists of what the owner calls blocks */
    ptd_blocks_of *blocks_of;  /* NULL: those are the blocks of the tables */
    void *owner;
    struct ptd_join *roots;    /* legs as paths, by number + 1 */
    struct ptd_join *joined;   /* longer paths, from 1 on */
    uint32_t root_capacity, joined_count, joined_capacity;
    struct ptd_join none;
    struct ptd_join *at;       /* the path being executed; `none` */
    uint32_t *seen;            /* legs that were executed */
    size_t seen_count, seen_capacity;
    uint32_t decisions_limit;  /* decisions in a run before it is cut */
    /* before the path that is being executed */
    int64_t seq;
    uint64_t instructions, branches;
};

/* Returns 0 or -ENOMEM; deinit also takes an object whose init failed. */
int ptd_joins_init(struct ptd_joins *joins);
void ptd_joins_deinit(struct ptd_joins *joins);

/* A slice begins; `seq` blocks came before it. */
void ptd_joins_begin(struct ptd_joins *joins, int64_t seq);

/* The leg a run is, 0: it is not known yet. */
uint32_t ptd_joins_find(const struct ptd_joins *joins, const struct ptd_run *run, uint64_t *ret_hash);

/* A leg that is not known yet, with what it comes to. `last`: how it ends. Returns 0, -ENOMEM or -EOVERFLOW. */
int ptd_joins_add_leg(struct ptd_joins *joins, const struct ptd_run *run, uint64_t hash, const struct ptd_sums *sums,
                      enum ptd_class last, uint32_t *ret);

/* The path being executed ends here. Returns 1 and its number, 0 when there is none, -ENOMEM or -EOVERFLOW. */
int ptd_joins_end(struct ptd_joins *joins, struct ptd_tables *tables, int32_t *ret);

/* ---- helpers of what is below; 0, -ENOMEM or -EOVERFLOW ---- */

/* The path being executed gets a number. */
int ptd_joins_number(struct ptd_joins *joins, struct ptd_tables *tables);

/* The path being executed and the leg it expects are one from now on, if that may be. */
int ptd_joins_join(struct ptd_joins *joins);

/* ---- the way from leg to leg ---- */

static inline struct ptd_join *ptd_joins_root(const struct ptd_joins *joins, uint32_t leg)
{
    return &joins->roots[leg & ~(uint32_t)PTD_JOIN_OVER];
}

/* The leg's items. */
static inline const int32_t *ptd_joins_items(const struct ptd_joins *joins, uint32_t leg)
{
    return joins->legs.items + joins->legs.starts[(leg & ~(uint32_t)PTD_JOIN_OVER) - 1];
}

/* Go on to a leg that is joined to the path being executed. */
static inline bool ptd_joins_follow(struct ptd_joins *joins, uint32_t leg)
{
    struct ptd_join *at = joins->at;
    bool joined = at->expected == leg && at->child;
    joins->at = joined ? &joins->joined[at->child] : at;
    return joined;
}

/*
 * A leg was executed to which ptd_joins_follow did not go on. Returns 1 and the number of the path that was over before
 * it, 0: there was none, -ENOMEM or -EOVERFLOW.
 */
static inline int ptd_joins_turn(struct ptd_joins *joins, struct ptd_tables *tables, uint32_t leg, int32_t *ret)
{
    struct ptd_join *at = joins->at;
    int error = 0;
    __builtin_prefetch(ptd_joins_root(joins, leg));
    if (__builtin_expect(!at->path, 0)) {
        if (at == &joins->none) {
            joins->at = ptd_joins_root(joins, leg);
            return 0;
        }
        error = ptd_joins_number(joins, tables);
    }
    *ret = (int32_t)at->path - 1;
    joins->seq += at->blocks;
    joins->instructions += at->instructions;
    joins->branches += at->branches;
    if (!at->child) {
        if (at->expected == leg) {
            if (__builtin_expect(++at->lead >= PTD_JOIN_LEAD, 0) && error == 0)
                error = ptd_joins_join(joins);
        } else {
            at->expected = at->lead ? at->expected : leg;
            at->lead = (uint8_t)(at->lead - (at->lead > 0));
        }
    }
    joins->at = ptd_joins_root(joins, leg);
    return error < 0 ? error : 1;
}

#endif
