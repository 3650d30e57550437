/* SPDX-License-Identifier: MIT */
/* The functions behind ours; real.h says what is guaranteed. */
#define _GNU_SOURCE
#include "real.h"

#include <dlfcn.h>

struct ptw_real ptw_real, ptw_threading;

static void *find(const char *name, const char *version)
{
	void *found = version ? dlvsym(RTLD_NEXT, name, version) : NULL;
	return found ? found : dlsym(RTLD_NEXT, name);
}

void ptw_real_init(void)
{
#define X(name, version)                                                \
	if (!ptw_real.name) {                                           \
		void *found = find(#name, version);                     \
		__atomic_store_n((void **)&ptw_real.name, found, __ATOMIC_RELAXED); \
	}                                                               \
	if (!ptw_threading.name)                                        \
		__atomic_store_n((void **)&ptw_threading.name, (void *)ptw_real.name, __ATOMIC_RELAXED);
	PTW_REAL_FUNCTIONS(X)
#undef X
}
