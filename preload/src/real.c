/* SPDX-License-Identifier: MIT */
/* The functions behind ours; real.h says what is guaranteed. */
#define _GNU_SOURCE
#include "real.h"

#include "next.h"

#include <dlfcn.h>
#include <stddef.h>

struct ptw_real ptw_real, ptw_threading;

static const struct {
#define X(name, version) char name[sizeof #name];
	PTW_REAL_FUNCTIONS(X)
#undef X
} names = {
#define X(name, version) #name,
	PTW_REAL_FUNCTIONS(X)
#undef X
};

/* A table, not code for each: a program under the soft engine pays for each instruction that runs the first time. */
static const struct {
	struct ptw_next_name name;
	const char *version;
} functions[] = {
#define X(name, version) { { PTW_NEXT_HASH(#name), offsetof(__typeof__(names), name) }, version },
	PTW_REAL_FUNCTIONS(X)
#undef X
};

_Static_assert(sizeof ptw_real == sizeof functions / sizeof functions[0] * sizeof(void *), "a pointer for each");

static void *find(const struct ptw_next *next, size_t i)
{
	const char *name = (const char *)&names + functions[i].name.at;
	void *found = functions[i].version ? dlvsym(RTLD_NEXT, name, functions[i].version) : NULL;

	return found ? found : ptw_next_find(next, name, functions[i].name.hash);
}

void ptw_real_init(void)
{
	void **real = (void **)&ptw_real, **threading = (void **)&ptw_threading;
	struct ptw_next next;

	ptw_next_init(&next);
	for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
		if (!__atomic_load_n(&real[i], __ATOMIC_RELAXED))
			__atomic_store_n(&real[i], find(&next, i), __ATOMIC_RELAXED);
		if (!__atomic_load_n(&threading[i], __ATOMIC_RELAXED))
			__atomic_store_n(&threading[i], __atomic_load_n(&real[i], __ATOMIC_RELAXED), __ATOMIC_RELAXED);
	}
}
