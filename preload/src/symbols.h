/* SPDX-License-Identifier: MIT */
/*
 * Where a variable lies, by its name: from the symbol tables of a file, static variables included. The file's content is
 * not believed: everything is looked up within its bounds. No allocation.
 */
#ifndef PTW_SYMBOLS_H
#define PTW_SYMBOLS_H

#include "sys.h"

struct ptw_symbol {
	uint64_t address; /* as the file has it */
	uint64_t size;    /* at least 1 */
};

/* Up to `room` variables of that name; how many there are, at most `room`. */
PTW_HIDDEN unsigned ptw_symbols_find(const char *path, const char *name, struct ptw_symbol *ret, unsigned room);

#endif
