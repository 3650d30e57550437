/* SPDX-License-Identifier: MIT */
/* The instructions of blocks, from the files in images/: lengths, and text. Not thread-safe. */
#ifndef DUMP_CODE_H
#define DUMP_CODE_H

#include "dump.h"

struct dump_code;

/* Code of the blocks of `tables`, which it borrows. Returns 0 or -ENOMEM. */
int dump_code_create(const struct dump_tables *tables, struct dump_code **ret);
void dump_code_destroy(struct dump_code *code);

/* Lengths of a block's instructions; NULL: the code is not there, or not what was decoded. The id must be valid. */
const uint8_t *dump_code_lengths(struct dump_code *code, int32_t block);

/*
 * A block's instructions as text, each NUL-terminated, back to back; with `bytes`, each begins with its bytes in hex.
 * NULL as above. It lives until the next call.
 */
const char *dump_code_text(struct dump_code *code, int32_t block, int bytes);

#endif
