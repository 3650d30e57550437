/* SPDX-License-Identifier: MIT */
/* Distinct legs (lists of blocks) and paths (lists of legs), numbered densely in the order they were first executed. */
#ifndef PTD_PATHS_H
#define PTD_PATHS_H

#include "api.h"
#include "hash.h"

enum {
    PATH_MAX_BLOCKS = 4096 /* direct jumps and calls alone do not cut a path, this does */
};

/* The run being executed, not yet numbered. */
struct ptd_run {
    uint32_t length;
    uint32_t decisions; /* conditional branches and returns in it */
    int32_t blocks[PATH_MAX_BLOCKS];
};

/* What a list of blocks comes to. */
struct ptd_sums {
    int32_t blocks;
    int32_t instructions; /* at most PATH_MAX_BLOCKS * 65535 */
    int32_t branches;
};

/* An entry of the hash table: the high half of the hash, so that few lists are compared in vain. */
struct ptd_path_entry {
    uint32_t tag;
    uint32_t path_plus_1; /* 0: empty */
};

struct ptd_paths {
    /* columns; starts has count + 1 elements */
    int32_t *starts;
    int32_t *length; /* blocks */
    int32_t *instructions;
    uint64_t *hashes;
    size_t count;
    size_t capacity;
    size_t next; /* the number of the list appended next: below `count` while what was appended before comes again */
    /* the lists back to back */
    int32_t *items;
    size_t item_count;
    size_t item_capacity;
    struct ptd_path_entry *table; /* by hash; at most half full; NULL: lists are only appended */
    uint64_t table_mask;
};

/* Returns 0 or -ENOMEM; deinit also takes an object whose init failed. `distinct`: lists are looked for by hash. */
int ptd_paths_init(struct ptd_paths *paths, int distinct);
void ptd_paths_deinit(struct ptd_paths *paths);

static inline void ptd_run_reset(struct ptd_run *run)
{
    run->length = 0;
    run->decisions = 0;
}

/* What one more block changes in a hash is a product: lists that follow each other have a hash made of theirs. */
#define PTD_PATH_FACTOR UINT64_C(0x9E3779B97F4A7C15)

/* The hash of a list of blocks. */
static inline uint64_t ptd_path_hash(const int32_t *blocks, uint32_t count)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < count; i++) /* one multiplication in the chain; ptd_mix spreads the sum later */
        hash = (hash + (uint32_t)blocks[i] + 1) * PTD_PATH_FACTOR;
    return hash;
}

/* Number a list that may be there already: for lists that are only written down. Returns 0, -ENOMEM or -EOVERFLOW. */
int ptd_paths_append(struct ptd_paths *paths, const int32_t *items, uint32_t count, const struct ptd_sums *sums,
                     int32_t *ret);

/*
 * Forget the youngest of the lists that were appended but `count`. Those from `next` on are about to be appended again,
 * in the same order: they keep their numbers.
 */
void ptd_paths_rewind(struct ptd_paths *paths, size_t count, size_t next);

/* Lists whose hash may be this one, from `*slot` on (begin with ptd_paths_slot); -1: there are no more. */
static inline uint64_t ptd_paths_slot(const struct ptd_paths *paths, uint64_t hash)
{
    return ptd_mix(hash) & paths->table_mask;
}
int32_t ptd_paths_candidate(const struct ptd_paths *paths, uint64_t hash, uint64_t *slot);

/* Begin to fetch what ptd_paths_find will look at: first its entry, then its list's place, then the list. */
static inline void ptd_paths_fetch_entry(const struct ptd_paths *paths, uint64_t hash)
{
    __builtin_prefetch(&paths->table[ptd_paths_slot(paths, hash)]);
}
static inline void ptd_paths_fetch_place(const struct ptd_paths *paths, uint64_t hash)
{
    uint32_t path_plus_1 = paths->table[ptd_paths_slot(paths, hash)].path_plus_1;
    __builtin_prefetch(&paths->starts[path_plus_1 ? path_plus_1 - 1 : 0]);
}
static inline void ptd_paths_fetch_list(const struct ptd_paths *paths, uint64_t hash)
{
    uint32_t path_plus_1 = paths->table[ptd_paths_slot(paths, hash)].path_plus_1;
    if (path_plus_1)
        __builtin_prefetch(&paths->items[paths->starts[path_plus_1 - 1]]);
}

/* The number of a list, -1: it is not there. */
int32_t ptd_paths_find(const struct ptd_paths *paths, const int32_t *items, uint32_t count, uint64_t hash);

/* Number a list that is not there. Returns 0, -ENOMEM or -EOVERFLOW. */
int ptd_paths_add(struct ptd_paths *paths, const int32_t *items, uint32_t count, uint64_t hash,
                  const struct ptd_sums *sums, int32_t *ret);

#endif
