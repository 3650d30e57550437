/* SPDX-License-Identifier: MIT */
/* Distinct runs of blocks, numbered densely in the order they were first executed. */
#ifndef PTD_PATHS_H
#define PTD_PATHS_H

#include "api.h"
#include "hash.h"

enum {
    PATH_MAX_BLOCKS = 4096 /* direct jumps and calls alone do not cut a path, this does */
};

/* The path being executed, not yet numbered. */
struct ptd_run {
    uint32_t length;
    uint32_t decisions; /* conditional branches and returns in it */
    uint64_t hash;
    int32_t blocks[PATH_MAX_BLOCKS];
};

/* An entry of the hash table: the high half of the hash, so that few paths are compared in vain. */
struct ptd_path_entry {
    uint32_t tag;
    uint32_t path_plus_1; /* 0: empty */
};

struct ptd_paths {
    /* columns; starts has count + 1 elements */
    int32_t *starts;
    int32_t *length;
    int32_t *instructions;
    int32_t *branches;
    uint64_t *hashes;
    size_t count;
    size_t capacity;
    /* the paths' blocks back to back */
    int32_t *blocks;
    size_t block_count;
    size_t block_capacity;
    struct ptd_path_entry *table; /* by hash; at most half full */
    uint64_t table_mask;
    uint32_t decisions_limit; /* decisions in a path before it is cut */
};

int ptd_paths_init(struct ptd_paths *paths);
void ptd_paths_deinit(struct ptd_paths *paths);

static inline void ptd_run_reset(struct ptd_run *run)
{
    run->length = 0;
    run->decisions = 0;
    run->hash = 0;
}

static inline uint64_t ptd_run_hash(uint64_t hash, int32_t block)
{
    /* one multiplication in the chain from block to block; ptd_mix spreads the sum when the run is looked up */
    return (hash + (uint32_t)block + 1) * UINT64_C(0x9E3779B97F4A7C15);
}

static inline void ptd_run_append(struct ptd_run *run, int32_t block)
{
    run->hash = ptd_run_hash(run->hash, block);
    run->blocks[run->length++] = block;
}

/* The hash of blocks that were put there one by one. */
static inline void ptd_run_rehash(struct ptd_run *run)
{
    run->hash = 0;
    for (uint32_t i = 0; i < run->length; i++)
        run->hash = ptd_run_hash(run->hash, run->blocks[i]);
}

/* Forget the youngest paths but `count`. */
void ptd_paths_truncate(struct ptd_paths *paths, size_t count);

/*
 * The number of the path `run` is; `instructions` and `last` are the blocks' columns, read when the path is new.
 * Returns 0, -ENOMEM or -EOVERFLOW.
 */
int ptd_paths_intern(struct ptd_paths *paths, const struct ptd_run *run, const int32_t *instructions,
                     const int8_t *last, int32_t *ret);

#endif
