/* SPDX-License-Identifier: MIT */
/* The dictionaries of a run as Python sees them. Owned by their creator; not thread-safe. */
#include "tables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct ptd_tables *create(bool distinct)
{
    struct ptd_tables *tables = calloc(1, sizeof *tables);
    if (!tables)
        return NULL;
    tables->distinct = distinct;
    int blocks = ptd_blocks_init(&tables->blocks);
    int legs = ptd_paths_init(&tables->legs, distinct);
    int paths = ptd_paths_init(&tables->paths, distinct);
    if (blocks < 0 || legs < 0 || paths < 0) {
        ptd_tables_destroy(tables);
        return NULL;
    }
    return tables;
}

struct ptd_tables *ptd_tables_create(void)
{
    return create(false);
}

struct ptd_tables *ptd_tables_create_distinct(void)
{
    return create(true);
}

void ptd_tables_destroy(struct ptd_tables *tables)
{
    if (!tables)
        return;
    ptd_blocks_deinit(&tables->blocks);
    ptd_paths_deinit(&tables->legs);
    ptd_paths_deinit(&tables->paths);
    free(tables);
}

void ptd_tables_clear(struct ptd_tables *tables)
{
    ptd_blocks_clear(&tables->blocks);
    ptd_paths_rewind(&tables->legs, 0, 0);
    ptd_paths_rewind(&tables->paths, 0, 0);
}

void ptd_tables_blocks(const struct ptd_tables *tables, struct ptd_blocks_view *ret)
{
    const struct ptd_blocks *blocks = &tables->blocks;
    *ret = (struct ptd_blocks_view){
        .count = blocks->count,
        .image = blocks->image,
        .offset = blocks->offset,
        .ip = blocks->ip,
        .last_ip = blocks->last_ip,
        .size = blocks->size,
        .instructions = blocks->instructions,
        .last = blocks->last,
        .mode = blocks->mode,
    };
}

static struct ptd_paths_view view_of(const struct ptd_paths *paths)
{
    return (struct ptd_paths_view){
        .count = paths->count,
        .item_count = paths->item_count,
        .starts = paths->starts,
        .items = paths->items,
        .length = paths->length,
        .instructions = paths->instructions,
    };
}

void ptd_tables_legs(const struct ptd_tables *tables, struct ptd_paths_view *ret)
{
    *ret = view_of(&tables->legs);
}

void ptd_tables_paths(const struct ptd_tables *tables, struct ptd_paths_view *ret)
{
    *ret = view_of(&tables->paths);
}

int32_t ptd_tables_first_block_of(const struct ptd_tables *tables, int32_t path)
{
    int32_t leg = tables->paths.items[tables->paths.starts[path]];
    return tables->legs.items[tables->legs.starts[leg]];
}

int64_t ptd_tables_expand(const struct ptd_tables *tables, size_t begin, size_t end, int32_t *ret_starts,
                          int32_t *ret_blocks)
{
    const struct ptd_paths *legs = &tables->legs, *paths = &tables->paths;
    int64_t count = 0;
    if (begin > end || end > paths->count)
        return -ERANGE;
    for (size_t path = begin; path < end; path++) {
        ret_starts[path - begin] = (int32_t)count;
        if (count + paths->length[path] > INT32_MAX)
            return -EOVERFLOW;
        for (int32_t i = paths->starts[path]; i < paths->starts[path + 1]; i++) {
            int32_t leg = paths->items[i];
            memcpy(ret_blocks + count, legs->items + legs->starts[leg], (size_t)legs->length[leg] * sizeof *ret_blocks);
            count += legs->length[leg];
        }
    }
    ret_starts[end - begin] = (int32_t)count;
    return count;
}
