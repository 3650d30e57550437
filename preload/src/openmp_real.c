/* SPDX-License-Identifier: MIT */
/* Which OpenMP a caller has; openmp_real.h says what is guaranteed. */
#define _GNU_SOURCE
#include "openmp_real.h"

#include "handshake.h"
#include "next.h"
#include "openmp.h"

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { CALLERS = 1024, COUNT = offsetof(struct ptw_openmp, library) / sizeof(void *) };

/* One behind the other, without pointers: these the dynamic linker would have to move each time a program begins. */
static const struct {
#define X(result, name, parameters) char name[sizeof #name];
	PTW_OPENMP_FUNCTIONS(X)
	PTW_OPENMP_KMPC(X)
#undef X
} names = {
#define X(result, name, parameters) #name,
	PTW_OPENMP_FUNCTIONS(X)
	PTW_OPENMP_KMPC(X)
#undef X
};

/* What calls, by its map. A library that takes the place of one that was unloaded has that one's: libgomp itself stays. */
static struct caller {
	const struct link_map *map;
	uint32_t ready;
	struct ptw_openmp functions;
} callers[CALLERS];

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

/* The library of that name; NULL: any OpenMP. */
static const struct link_map *loaded(const char *name)
{
	for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next)
		if (name ? strcmp(base_name(map->l_name), base_name(name)) == 0 : ptw_is_openmp(map->l_name))
			return map;
	return NULL;
}

/* What the object says that it needs. */
static const struct link_map *needed_by(const struct link_map *object)
{
	const char *text = NULL;
	for (const ElfW(Dyn) *entry = object->l_ld; entry && entry->d_tag != DT_NULL; entry++)
		if (entry->d_tag == DT_STRTAB)
			text = (const char *)(entry->d_un.d_ptr < object->l_addr ? entry->d_un.d_ptr + object->l_addr
										 : entry->d_un.d_ptr);
	for (const ElfW(Dyn) *entry = object->l_ld; text && entry->d_tag != DT_NULL; entry++)
		if (entry->d_tag == DT_NEEDED && ptw_is_openmp(text + entry->d_un.d_val))
			return loaded(text + entry->d_un.d_val);
	return NULL;
}

/* Whoever has it, the caller first: a runtime may be linked into a library, whatever that is called. */
static void *search(const struct link_map *caller, const char *name)
{
	const struct link_map *ours = ptw_next_object_at((uint64_t)ptw_openmp_for);
	const uint32_t hash = ptw_next_hash(name);
	void *found = caller != ours ? ptw_next_in(caller, name, hash, NULL) : NULL;
	for (const struct link_map *map = _r_debug.r_map; map && !found; map = map->l_next)
		found = map != ours ? ptw_next_in(map, name, hash, NULL) : NULL;
	return found;
}

static void *find_name(const struct link_map *caller, const struct link_map *library, bool global, const char *name)
{
	void *found = global ? dlsym(RTLD_NEXT, name) : NULL;
	if (!found && library)
		found = ptw_next_in(library, name, ptw_next_hash(name), NULL);
	return found ? found : search(caller, name);
}

static void find(const struct link_map *caller, struct ptw_openmp *ret)
{
	const bool global = dlsym(RTLD_NEXT, "GOMP_parallel");
	const struct link_map *library = needed_by(caller);
	library = library ? library : loaded(NULL);
	const char *name = (const char *)&names;
	void **functions = (void **)ret;
	for (unsigned i = 0; i < COUNT; i++, name += strlen(name) + 1)
		functions[i] = find_name(caller, library, global, name);
	ret->library = ptw_next_object_at((uint64_t)ret->GOMP_parallel);
}

static struct caller *entry_of(const struct link_map *map)
{
	uint64_t at = ((uint64_t)map >> 4) * 0x9e3779b97f4a7c15ull >> 32;
	for (unsigned probe = 0; probe < CALLERS; probe++) {
		struct caller *caller = &callers[(at + probe) % CALLERS];
		const struct link_map *found = __atomic_load_n(&caller->map, __ATOMIC_ACQUIRE);
		if (found == map || (!found && (__atomic_compare_exchange_n(&caller->map, &found, map, false, __ATOMIC_ACQ_REL,
									    __ATOMIC_ACQUIRE) || found == map)))
			return caller;
	}
	ptw_say("ptweave: more than 1024 libraries use OpenMP: the program cannot go on; use LD_PRELOAD= to run it untraced");
	abort();
}

/* Whoever comes at the same time writes the same. */
static void keep(struct caller *caller, const struct ptw_openmp *functions)
{
	void **kept = (void **)&caller->functions, *const *found = (void *const *)functions;
	for (unsigned i = 0; i < COUNT; i++)
		__atomic_store_n(&kept[i], found[i], __ATOMIC_RELAXED);
	__atomic_store_n(&caller->functions.library, functions->library, __ATOMIC_RELAXED);
	__atomic_store_n(&caller->ready, 1, __ATOMIC_RELEASE);
}

static bool is_ready(const struct caller *caller) { return __atomic_load_n(&caller->ready, __ATOMIC_ACQUIRE); }

/* Code that no library has (made while the program runs) is the executable's. */
static const struct link_map *caller_at(uint64_t pc)
{
	const struct link_map *map = ptw_next_object_at(pc);
	return map ? map : _r_debug.r_map;
}

const struct ptw_openmp *ptw_openmp_for(uint64_t pc)
{
	const struct link_map *map = caller_at(pc);
	struct caller *caller = entry_of(map);
	if (__builtin_expect(!is_ready(caller), 0)) {
		struct ptw_openmp functions;
		find(map, &functions);
		keep(caller, &functions);
	}
	return &caller->functions;
}

void ptw_openmp_learn(uint64_t pc, const struct ptw_openmp *functions)
{
	struct caller *caller = entry_of(caller_at(pc));
	if (!is_ready(caller))
		keep(caller, functions);
}
