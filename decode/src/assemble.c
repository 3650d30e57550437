/* SPDX-License-Identifier: MIT */
/*
 * Putting the results of tasks together.
 *
 * Each task numbers the blocks, legs and paths it meets by itself. Taken over in the order of the tasks, each entry
 * once, they get the numbers they would have if one task had met all of it; a task's rows are then renumbered through
 * maps. Paths are the same when their blocks are, whatever legs they are made of. What tasks say is checked: their
 * files may have been damaged. Nothing global; see api.h for who owns what.
 */
#include "api.h"
#include "tables.h"

#include <errno.h>
#include <string.h>

enum { FETCHED = 16 }; /* so many blocks ahead their entries are fetched */

static struct ptd_block_row row_of(const struct ptd_blocks_view *blocks, size_t i)
{
    return (struct ptd_block_row){
        .image = blocks->image[i],
        .offset = blocks->offset[i],
        .ip = blocks->ip[i],
        .last_ip = blocks->last_ip[i],
        .size = blocks->size[i],
        .instructions = blocks->instructions[i],
        .last = blocks->last[i],
        .mode = blocks->mode[i],
    };
}

static int take_blocks(struct ptd_tables *tables, const struct ptd_blocks_view *blocks, int32_t *map)
{
    for (size_t i = 0; i < blocks->count; i++) {
        if (i + FETCHED < blocks->count) {
            struct ptd_block_row later = row_of(blocks, i + FETCHED);
            ptd_blocks_fetch_row(&tables->blocks, &later);
        }
        struct ptd_block_row row = row_of(blocks, i);
        if (row.instructions <= 0 || row.instructions > UINT16_MAX || row.last < PTD_OTHER || row.last > PTD_FAR)
            return -ERANGE;
        int error = ptd_blocks_intern_row(&tables->blocks, &row, &map[i]);
        if (error < 0)
            return error;
    }
    return 0;
}

/* Some of a task's lists in our numbers, back to back: what they are compared with is fetched for all of them at once. */
enum { BATCH = 32 };
struct batch {
    size_t count;
    uint32_t starts[BATCH + 1];
    uint64_t hashes[BATCH];
    int32_t items[BATCH * 64 + PATH_MAX_BLOCKS];
};

/* What lists are of, and what those numbers are in ours. */
struct numbers {
    const int32_t *map;
    size_t count;
};

/* The next lists from `first` on, at least one. Returns 0 or -ERANGE. */
static int batch_fill(struct batch *batch, const struct ptd_paths_view *lists, size_t first,
                      const struct numbers *numbers)
{
    uint32_t used = 0;
    batch->count = 0;
    while (batch->count < BATCH && first + batch->count < lists->count && used <= BATCH * 64) {
        int64_t start = lists->starts[first + batch->count], end = lists->starts[first + batch->count + 1];
        if (start < 0 || end <= start || end > (int64_t)lists->item_count || end - start > PATH_MAX_BLOCKS)
            return -ERANGE;
        batch->starts[batch->count++] = used;
        for (int64_t i = start; i < end; i++) {
            int32_t item = lists->items[i];
            if (item < 0 || (size_t)item >= numbers->count)
                return -ERANGE;
            batch->items[used++] = numbers->map[item];
        }
    }
    batch->starts[batch->count] = used;
    return 0;
}

/* Fetch what lists of these hashes are compared with. */
static void batch_fetch(const struct batch *batch, const struct ptd_paths *paths)
{
    for (size_t i = 0; i < batch->count; i++)
        ptd_paths_fetch_entry(paths, batch->hashes[i]);
    for (size_t i = 0; i < batch->count; i++)
        ptd_paths_fetch_place(paths, batch->hashes[i]);
    for (size_t i = 0; i < batch->count; i++)
        ptd_paths_fetch_list(paths, batch->hashes[i]);
}

/* The number of a leg of our blocks. Returns 0 or negative errno. */
static int intern_leg(struct ptd_tables *tables, const int32_t *blocks, uint32_t count, uint64_t hash, int32_t *ret)
{
    *ret = ptd_paths_find(&tables->legs, blocks, count, hash);
    if (*ret >= 0)
        return 0;
    struct ptd_sums sums = {.blocks = (int32_t)count};
    for (uint32_t i = 0; i < count; i++)
        sums.instructions += tables->blocks.instructions[blocks[i]];
    return ptd_paths_add(&tables->legs, blocks, count, hash, &sums, ret);
}

static int take_legs(struct ptd_tables *tables, const struct ptd_paths_view *legs, const struct numbers *blocks,
                     int32_t *map)
{
    struct batch batch;
    int error = 0;
    for (size_t first = 0; error == 0 && first < legs->count; first += batch.count) {
        error = batch_fill(&batch, legs, first, blocks);
        if (error < 0)
            return error;
        for (size_t i = 0; i < batch.count; i++)
            batch.hashes[i] = ptd_path_hash(batch.items + batch.starts[i], batch.starts[i + 1] - batch.starts[i]);
        batch_fetch(&batch, &tables->legs);
        for (size_t i = 0; error == 0 && i < batch.count; i++)
            error = intern_leg(tables, batch.items + batch.starts[i], batch.starts[i + 1] - batch.starts[i],
                               batch.hashes[i], &map[first + i]);
    }
    return error;
}

/* Block after block of a path that is made of legs. */
struct reader {
    const struct ptd_paths *legs;
    const int32_t *next, *end; /* legs */
    const int32_t *block, *last;
};

static int32_t read_block(struct reader *reader)
{
    while (reader->block == reader->last) {
        if (reader->next == reader->end)
            return -1;
        int32_t leg = *reader->next++;
        reader->block = reader->legs->items + reader->legs->starts[leg];
        reader->last = reader->block + reader->legs->length[leg];
    }
    return *reader->block++;
}

/* Whether a path of ours has the blocks of a list of legs. */
static bool same_blocks(const struct ptd_tables *tables, int32_t path, const int32_t *legs, int32_t count)
{
    const struct ptd_paths *paths = &tables->paths;
    const int32_t *ours = paths->items + paths->starts[path];
    int32_t our_count = paths->starts[path + 1] - paths->starts[path], block;
    if (our_count == count && memcmp(ours, legs, (size_t)count * sizeof *legs) == 0)
        return true;
    struct reader one = {.legs = &tables->legs, .next = ours, .end = ours + our_count};
    struct reader other = {.legs = &tables->legs, .next = legs, .end = legs + count};
    while ((block = read_block(&one)) == read_block(&other))
        if (block < 0)
            return true;
    return false;
}

/* Factors of the hashes of what comes before so many blocks. */
static void powers_init(uint64_t *powers)
{
    powers[0] = 1;
    for (int i = 1; i <= PATH_MAX_BLOCKS; i++)
        powers[i] = powers[i - 1] * PTD_PATH_FACTOR;
}

/* The hash of the blocks of a list of legs. */
static uint64_t hash_of_legs(const struct ptd_paths *legs, const uint64_t *powers, const int32_t *list, uint32_t count)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < count; i++)
        hash = hash * powers[legs->length[list[i]]] + legs->hashes[list[i]];
    return hash;
}

/* The number of a path made of our legs. Returns 0 or negative errno. */
static int intern_path(struct ptd_tables *tables, const int32_t *legs, uint32_t count, uint64_t hash, int32_t *ret)
{
    struct ptd_sums sums = {0};
    for (uint32_t i = 0; i < count; i++) {
        sums.blocks += tables->legs.length[legs[i]];
        if (sums.blocks > PATH_MAX_BLOCKS)
            return -ERANGE;
        sums.instructions += tables->legs.instructions[legs[i]];
    }
    uint64_t slot = ptd_paths_slot(&tables->paths, hash);
    do
        *ret = ptd_paths_candidate(&tables->paths, hash, &slot);
    while (*ret >= 0 && !same_blocks(tables, *ret, legs, (int32_t)count));
    return *ret < 0 ? ptd_paths_add(&tables->paths, legs, count, hash, &sums, ret) : 0;
}

static int take_paths(struct ptd_tables *tables, const struct ptd_paths_view *paths, const struct numbers *legs,
                      int32_t *map)
{
    struct batch batch;
    uint64_t powers[PATH_MAX_BLOCKS + 1];
    int error = 0;
    powers_init(powers);
    for (size_t first = 0; error == 0 && first < paths->count; first += batch.count) {
        error = batch_fill(&batch, paths, first, legs);
        if (error < 0)
            return error;
        for (uint32_t i = 0; i < batch.starts[batch.count]; i++) {
            __builtin_prefetch(&tables->legs.length[batch.items[i]]);
            __builtin_prefetch(&tables->legs.hashes[batch.items[i]]);
            __builtin_prefetch(&tables->legs.instructions[batch.items[i]]);
        }
        for (size_t i = 0; i < batch.count; i++)
            batch.hashes[i] = hash_of_legs(&tables->legs, powers, batch.items + batch.starts[i],
                                           batch.starts[i + 1] - batch.starts[i]);
        batch_fetch(&batch, &tables->paths);
        for (size_t i = 0; error == 0 && i < batch.count; i++)
            error = intern_path(tables, batch.items + batch.starts[i], batch.starts[i + 1] - batch.starts[i],
                                batch.hashes[i], &map[first + i]);
    }
    return error;
}

int ptd_tables_take(struct ptd_tables *tables, const struct ptd_blocks_view *blocks, const struct ptd_paths_view *legs,
                    const struct ptd_paths_view *paths, int32_t *block_map, int32_t *leg_map, int32_t *path_map)
{
    int error = tables->distinct ? take_blocks(tables, blocks, block_map) : -EINVAL;
    if (error == 0)
        error = take_legs(tables, legs, &(struct numbers){block_map, blocks->count}, leg_map);
    return error < 0 ? error : take_paths(tables, paths, &(struct numbers){leg_map, legs->count}, path_map);
}

int64_t ptd_renumber_flow(const struct ptd_renumbering *numbers, const int32_t *flow, size_t count, int64_t seq,
                          int32_t *ret_path, int64_t *ret_seq)
{
    for (size_t i = 0; i < count; i++) {
        int32_t path = flow[i];
        if (path < 0 || (size_t)path >= numbers->count)
            return -ERANGE;
        ret_path[i] = numbers->map[path];
        ret_seq[i] = seq;
        seq += numbers->length[path];
    }
    return seq;
}
