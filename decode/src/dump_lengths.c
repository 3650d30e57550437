/* SPDX-License-Identifier: MIT */
/* The lengths of many blocks' instructions at once. */
#include "dump_code.h"

#include <errno.h>
#include <string.h>

int dump_lengths(const struct dump_tables *tables, const int32_t *blocks, size_t n, uint8_t *lengths)
{
    struct dump_code *code;
    int error = dump_code_create(tables, &code);
    if (error < 0)
        return error;
    for (size_t i = 0; i < n; i++) {
        if (blocks[i] < 0 || (size_t)blocks[i] >= tables->block_count || tables->instructions[blocks[i]] < 0) {
            error = -EINVAL;
            break;
        }
        const size_t count = (size_t)tables->instructions[blocks[i]];
        const uint8_t *known = dump_code_lengths(code, blocks[i]);
        if (known)
            memcpy(lengths, known, count);
        else
            memset(lengths, 0, count);
        lengths += count;
    }
    dump_code_destroy(code);
    return error;
}
