/* SPDX-License-Identifier: MIT */
/*
 * What dlsym(RTLD_NEXT, name) finds, for hundreds of names when a program begins: dlsym takes about 900 instructions
 * for each, this about 150.
 *
 * The tables of symbols are read as the dynamic linker reads them (GNU hash: bloom filter, buckets, chains), of the
 * objects up to the C library in the order they were loaded in, which is the order of the search. What the C library
 * alone defines is taken from it; whatever else there is to decide is left to dlsym: a name that another object
 * defines too, one that is nowhere, versions that are hidden, objects without such a table, auditors.
 *
 * Neither allocates nor locks unless dlsym does. Any thread.
 */
#ifndef PTW_NEXT_H
#define PTW_NEXT_H

#include "sys.h"

#include <link.h>
#include <stdbool.h>

#define PTW_NEXT_OTHERS 64 /* with more objects before the C library all is left to dlsym */

/* An object's table of symbols. */
struct ptw_next_table {
	const uint64_t *bloom;
	const uint32_t *buckets, *chains; /* chains: of the symbol `first` and those after it */
	const ElfW(Sym) *symbols;
	const char *names;
	const uint16_t *versions; /* NULL: none */
	uintptr_t base;
	uint32_t first, bucket_count, bloom_mask, bloom_shift;
};

struct ptw_next {
	struct ptw_next_table libc, others[PTW_NEXT_OTHERS];
	size_t other_count;
	bool usable;
};

PTW_HIDDEN void ptw_next_init(struct ptw_next *next);

/* NULL: there is none. */
PTW_HIDDEN void *ptw_next_find(const struct ptw_next *next, const char *name);

#endif
