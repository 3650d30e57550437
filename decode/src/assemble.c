/* SPDX-License-Identifier: MIT */
/*
 * Putting the results of tasks together.
 *
 * Each task numbers the blocks and paths it meets by itself. Taken over in the order of the tasks, each entry once,
 * they get the numbers they would have if one task had met all of it; a task's rows are then renumbered through
 * maps. What tasks say is checked: their files may have been damaged. Nothing global; see api.h for who owns what.
 */
#include "api.h"
#include "tables.h"

#include <errno.h>

static int take_blocks(struct ptd_tables *tables, const struct ptd_blocks_view *blocks, int32_t *map)
{
    for (size_t i = 0; i < blocks->count; i++) {
        struct ptd_block_row row = {
            .image = blocks->image[i],
            .offset = blocks->offset[i],
            .ip = blocks->ip[i],
            .last_ip = blocks->last_ip[i],
            .size = blocks->size[i],
            .instructions = blocks->instructions[i],
            .last = blocks->last[i],
            .mode = blocks->mode[i],
        };
        if (row.instructions <= 0 || row.instructions > UINT16_MAX || row.last < PTD_OTHER || row.last > PTD_FAR)
            return -ERANGE;
        int error = ptd_blocks_intern_row(&tables->blocks, &row, &map[i]);
        if (error < 0)
            return error;
    }
    return 0;
}

/* The run a task's path is, in our numbers. */
static int run_of(const struct ptd_paths_view *paths, size_t path, const int32_t *block_map, size_t block_count,
                  struct ptd_run *run)
{
    int64_t start = paths->starts[path], end = paths->starts[path + 1];
    if (start < 0 || end <= start || end > (int64_t)paths->block_count || end - start > PATH_MAX_BLOCKS)
        return -ERANGE;
    ptd_run_reset(run);
    for (int64_t i = start; i < end; i++) {
        int32_t block = paths->blocks[i];
        if (block < 0 || (size_t)block >= block_count)
            return -ERANGE;
        ptd_run_append(run, block_map[block]);
    }
    return 0;
}

int ptd_tables_take(struct ptd_tables *tables, const struct ptd_blocks_view *blocks,
                    const struct ptd_paths_view *paths, int32_t *block_map, int32_t *path_map)
{
    struct ptd_run run;
    int error = take_blocks(tables, blocks, block_map);
    for (size_t i = 0; error == 0 && i < paths->count; i++) {
        error = run_of(paths, i, block_map, blocks->count, &run);
        if (error == 0)
            error = ptd_paths_intern(&tables->paths, &run, tables->blocks.instructions, tables->blocks.last,
                                     &path_map[i]);
    }
    return error;
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
