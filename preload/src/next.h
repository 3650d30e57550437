/* SPDX-License-Identifier: MIT */
/*
 * What dlsym(RTLD_NEXT, name) finds, for hundreds of names when a program begins: dlsym takes about 900 instructions
 * for each, this about 90.
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

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>

/* The GNU hash of a name that is a literal, as a constant: h = 33 h + c for each character, from 5381. */
#define PTW_NEXT_LONGEST 48
#define PTW_NEXT_WITHIN(name, at) ((at) < sizeof(name) - 1)
#define PTW_NEXT_1(hash, name, at)                                                \
	((hash) * (PTW_NEXT_WITHIN(name, at) ? 33u : 1u) +                        \
	 (PTW_NEXT_WITHIN(name, at) ? (unsigned char)(name)[PTW_NEXT_WITHIN(name, at) ? (at) : 0] : 0u))
#define PTW_NEXT_2(hash, name, at) PTW_NEXT_1(PTW_NEXT_1(hash, name, at), name, (at) + 1)
#define PTW_NEXT_4(hash, name, at) PTW_NEXT_2(PTW_NEXT_2(hash, name, at), name, (at) + 2)
#define PTW_NEXT_8(hash, name, at) PTW_NEXT_4(PTW_NEXT_4(hash, name, at), name, (at) + 4)
#define PTW_NEXT_16(hash, name, at) PTW_NEXT_8(PTW_NEXT_8(hash, name, at), name, (at) + 8)
#define PTW_NEXT_HASH(name)                                                       \
	(PTW_NEXT_16(PTW_NEXT_16(PTW_NEXT_16(5381u, name, 0), name, 16), name, 32) +  \
	 0 * sizeof(char[sizeof(name) - 1 <= PTW_NEXT_LONGEST ? 1 : -1]))

/* A single function that we stand in front of: looked up at the first call. */
#define PTW_NEXT(name)                                             \
	({                                                         \
		static __typeof__(&name) next;                     \
		if (!next)                                         \
			*(void **)&next = dlsym(RTLD_NEXT, #name); \
		next;                                              \
	})

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

/* A name in a list of many: its hash, and where it begins in their text. No pointer, which the dynamic linker would have
 * to move each time a program begins. */
struct ptw_next_name {
	uint32_t hash, at;
};

/* `hash`: PTW_NEXT_HASH of the name. NULL: there is none. */
PTW_HIDDEN void *ptw_next_find(const struct ptw_next *next, const char *name, uint32_t hash);

/* The same hash, for names that are longer, or no literals. */
PTW_HIDDEN uint32_t ptw_next_hash(const char *name);

/* What one object (its `l_addr` and `l_ld`) defines for others by a name; NULL: nothing. `hash`: that of the name.
 * ret_size, which may be NULL: the symbol's. */
PTW_HIDDEN void *ptw_next_in(const struct link_map *object, const char *name, uint32_t hash, uint64_t *ret_size);

/* The same of the C library, whatever stands in front of it. NULL: it has none, or there is none. */
PTW_HIDDEN void *ptw_next_in_libc(const char *name, uint32_t hash);

/* The object that an address lies in; NULL: none. dladdr looks through all symbols of the object besides, which in the C
 * library are 90,000 instructions. Before glibc 2.35 it takes the loader's lock. */
PTW_HIDDEN const struct link_map *ptw_next_object_at(uint64_t address);

#endif
