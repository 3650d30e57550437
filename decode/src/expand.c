/* SPDX-License-Identifier: MIT */
/* From flow back to instructions. Pure functions over the caller's arrays, whose ids are checked. */
#include "api.h"

#include <errno.h>

struct hasher {
    uint64_t hash;
    int64_t count;
};

static int hash_block(const struct ptd_expansion *tables, int32_t block, struct hasher *hasher)
{
    if (block < 0 || (size_t)block >= tables->block_count)
        return -ERANGE;
    int32_t instructions = tables->instructions[block];
    int64_t start = tables->length_starts[block];
    if (instructions < 0 || start < 0 || (uint64_t)start + (uint64_t)instructions > tables->length_count)
        return -ERANGE;
    const uint8_t *lengths = tables->lengths + start;
    uint64_t ip = tables->ips[block];
    uint64_t hash = hasher->hash;
    for (int32_t i = 0; i < instructions; i++) {
        hash = (hash ^ ip) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 29;
        ip += lengths[i];
    }
    hasher->hash = hash;
    hasher->count += instructions;
    return 0;
}

static int hash_path(const struct ptd_expansion *tables, int32_t path, struct hasher *hasher)
{
    if (path < 0 || (size_t)path >= tables->path_count)
        return -ERANGE;
    int32_t start = tables->starts[path], end = tables->starts[path + 1];
    if (start < 0 || end < start || (size_t)end > tables->list_count)
        return -ERANGE;
    for (int32_t i = start; i < end; i++) {
        int error = hash_block(tables, tables->blocks[i], hasher);
        if (error < 0)
            return error;
    }
    return 0;
}

int64_t ptd_hash_flow(const struct ptd_expansion *tables, const int32_t *flow, size_t count, uint64_t *hash)
{
    struct hasher hasher = {.hash = *hash};
    for (size_t i = 0; i < count; i++) {
        int error = hash_path(tables, flow[i], &hasher);
        if (error < 0)
            return error;
    }
    *hash = hasher.hash;
    return hasher.count;
}
