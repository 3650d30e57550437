/* SPDX-License-Identifier: MIT */
/* The object table; objects.h says what is guaranteed. */
#define _GNU_SOURCE
#include "objects.h"

#include <stdbool.h>
#include <sys/mman.h>

#define BYTES (PTW_OBJECTS * sizeof(struct ptw_object))

struct ptw_object *ptw_objects_init(void)
{
	long map = PTW_SYS(SYS_mmap, 0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			   -1, 0);
	if (map < 0 && map >= -4095)
		return NULL;
	PTW_SYS(SYS_madvise, map, BYTES, MADV_WIPEONFORK, 0, 0, 0);
	return (struct ptw_object *)map;
}

void ptw_objects_deinit(struct ptw_object *table) { PTW_SYS(SYS_munmap, table, BYTES, 0, 0, 0, 0); }

static uint32_t slot(uint64_t key)
{
	/* Fibonacci hashing: the high bits of key/8 times 2^64 over the golden ratio */
	return (uint32_t)(((key >> 3 ^ key << 61) * 0x9e3779b97f4a7c15ull) >> 46);
}

struct ptw_object *ptw_object_get(struct ptw_object *table, uint64_t key)
{
	uint32_t at = slot(key);
	for (uint32_t probe = 0; probe < PTW_OBJECT_PROBES; probe++, at = (at + 1) & (PTW_OBJECTS - 1)) {
		struct ptw_object *object = &table[at];
		uint64_t found = __atomic_load_n(&object->key, __ATOMIC_ACQUIRE);
		if (found == key)
			return object;
		if (found == 0) {
			if (__atomic_compare_exchange_n(&object->key, &found, key, false, __ATOMIC_ACQ_REL,
							__ATOMIC_ACQUIRE) ||
			    found == key)
				return object;
		}
	}
	return NULL;
}
