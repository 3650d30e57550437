/* SPDX-License-Identifier: MIT */
/* The next definition in line; next.h says how. Sources: glibc's elf/dl-lookup.c for what a lookup accepts, the ELF gABI
 * for symbols, "ELF: GNU hash tables" (binutils, ld/ and bfd/elflink.c) for the hash table. */
#define _GNU_SOURCE
#include "next.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define HIDDEN_VERSION 0x8000u

/* Where an entry of a dynamic section points to: the dynamic linker adds the base to it, but for the vDSO. */
static const void *at(const struct link_map *map, uintptr_t value)
{
	return (const void *)(value < map->l_addr ? value + map->l_addr : value);
}

static bool read_table(struct ptw_next_table *table, const struct link_map *map)
{
	const uint32_t *hash = NULL;

	*table = (struct ptw_next_table){.base = map->l_addr};
	for (const ElfW(Dyn) *entry = map->l_ld; entry && entry->d_tag != DT_NULL; entry++) {
		if (entry->d_tag == DT_GNU_HASH)
			hash = at(map, entry->d_un.d_ptr);
		else if (entry->d_tag == DT_SYMTAB)
			table->symbols = at(map, entry->d_un.d_ptr);
		else if (entry->d_tag == DT_STRTAB)
			table->names = at(map, entry->d_un.d_ptr);
		else if (entry->d_tag == DT_VERSYM)
			table->versions = at(map, entry->d_un.d_ptr);
	}
	if (!hash || !table->symbols || !table->names)
		return false;
	table->bucket_count = hash[0];
	table->first = hash[1];
	table->bloom_mask = hash[2] - 1; /* their number is a power of two */
	table->bloom_shift = hash[3];
	table->bloom = (const uint64_t *)(hash + 4);
	table->buckets = (const uint32_t *)(table->bloom + hash[2]);
	table->chains = table->buckets + table->bucket_count;
	return true;
}

static bool is_libc(const struct link_map *map)
{
	const char *slash = map->l_name ? strrchr(map->l_name, '/') : NULL;

	return slash && !strcmp(slash, "/libc.so.6");
}

void ptw_next_init(struct ptw_next *next)
{
	next->usable = false;
	next->other_count = 0;
	if (getenv("LD_AUDIT")) /* an auditor is asked by dlsym, and may answer something else */
		return;
	for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next) {
		if (map->l_ld == _DYNAMIC)
			continue;
		if (is_libc(map)) {
			next->usable = read_table(&next->libc, map);
			return;
		}
		if (next->other_count == PTW_NEXT_OTHERS || !read_table(&next->others[next->other_count++], map))
			return;
	}
}

static bool may_have(const struct ptw_next_table *table, uint32_t hash)
{
	uint64_t word = table->bloom[hash / 64 & table->bloom_mask];

	return word >> hash % 64 & word >> (hash >> table->bloom_shift) % 64 & 1;
}

/* The definition that a lookup without a version takes; NULL: none. The linker lets an object have one at most whose
 * version is not hidden. */
static inline const ElfW(Sym) *definition(const struct ptw_next_table *table, uint32_t hash, const char *name)
{
	uint32_t index = table->buckets[hash % table->bucket_count];

	if (index < table->first)
		return NULL;
	for (const uint32_t *chain = table->chains + (index - table->first);; index++, chain++) {
		if ((*chain | 1) == (hash | 1) && !(table->versions && table->versions[index] & HIDDEN_VERSION) &&
		    !strcmp(table->names + table->symbols[index].st_name, name))
			return &table->symbols[index];
		if (*chain & 1)
			return NULL;
	}
}

/* NULL where dlsym has to say. */
static void *place_of(const struct ptw_next_table *table, const ElfW(Sym) *symbol)
{
	void *place = (void *)(table->base + symbol->st_value);
	unsigned type = ELF64_ST_TYPE(symbol->st_info), binding = ELF64_ST_BIND(symbol->st_info);

	if (symbol->st_shndx == SHN_UNDEF || symbol->st_shndx >= SHN_LORESERVE || !symbol->st_value ||
	    (binding != STB_GLOBAL && binding != STB_WEAK))
		return NULL;
	if (type == STT_GNU_IFUNC)
		return ((void *(*)(void))place)(); /* it says which function it is: on x86-64 it takes no argument */
	return type == STT_FUNC || type == STT_OBJECT ? place : NULL;
}

void *ptw_next_find(const struct ptw_next *next, const char *name, uint32_t hash)
{
	const ElfW(Sym) *symbol = NULL;
	void *place;
	size_t i;

	if (next->usable) {
		for (i = 0; i < next->other_count; i++)
			if (may_have(&next->others[i], hash) && definition(&next->others[i], hash, name))
				break;
		if (i == next->other_count)
			symbol = definition(&next->libc, hash, name);
	}
	place = symbol ? place_of(&next->libc, symbol) : NULL;
	return place ? place : dlsym(RTLD_NEXT, name);
}

void *ptw_next_in_libc(const char *name, uint32_t hash)
{
	for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next)
		if (is_libc(map))
			return ptw_next_in(map, name, hash, NULL);
	return NULL;
}

uint32_t ptw_next_hash(const char *name)
{
	uint32_t hash = 5381;
	for (; *name; name++)
		hash = 33 * hash + (unsigned char)*name;
	return hash;
}

void *ptw_next_in(const struct link_map *object, const char *name, uint32_t hash, uint64_t *ret_size)
{
	struct ptw_next_table table;
	const ElfW(Sym) *symbol = NULL;

	if (read_table(&table, object) && table.bucket_count)
		symbol = definition(&table, hash, name);
	if (ret_size)
		*ret_size = symbol ? symbol->st_size : 0;
	return symbol ? place_of(&table, symbol) : NULL;
}

int _dl_find_object(void *, struct dl_find_object *) __attribute__((weak));

const struct link_map *ptw_next_object_at(uint64_t address)
{
	struct dl_find_object object;
	struct link_map *map = NULL;
	Dl_info info;

	if (_dl_find_object)
		return _dl_find_object((void *)address, &object) == 0 ? object.dlfo_link_map : NULL;
	return dladdr1((void *)address, &info, (void **)&map, RTLD_DL_LINKMAP) ? map : NULL;
}
