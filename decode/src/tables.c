/* SPDX-License-Identifier: MIT */
/* The dictionaries of a run as Python sees them. Owned by their creator; not thread-safe. */
#include "tables.h"

#include <stdlib.h>

struct ptd_tables *ptd_tables_create(void)
{
    struct ptd_tables *tables = calloc(1, sizeof *tables);
    if (!tables)
        return NULL;
    int blocks = ptd_blocks_init(&tables->blocks);
    int paths = ptd_paths_init(&tables->paths);
    if (blocks < 0 || paths < 0) {
        ptd_tables_destroy(tables);
        return NULL;
    }
    return tables;
}

void ptd_tables_destroy(struct ptd_tables *tables)
{
    if (!tables)
        return;
    ptd_blocks_deinit(&tables->blocks);
    ptd_paths_deinit(&tables->paths);
    free(tables);
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

void ptd_tables_paths(const struct ptd_tables *tables, struct ptd_paths_view *ret)
{
    const struct ptd_paths *paths = &tables->paths;
    *ret = (struct ptd_paths_view){
        .count = paths->count,
        .block_count = paths->block_count,
        .starts = paths->starts,
        .blocks = paths->blocks,
        .length = paths->length,
        .instructions = paths->instructions,
    };
}
