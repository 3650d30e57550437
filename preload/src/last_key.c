/* SPDX-License-Identifier: MIT */
/*
 * The C library calls destructors in the order of their keys, and gives out the lowest key that is free: ours is the
 * highest. So what other destructors do, in the last round too, is done before ours is called.
 *
 * To get at it through the public functions all others have to be taken and given back, each looked for from the first
 * one on: five million instructions in every process. The C library's table of keys is there for debuggers, with where
 * its fields are (nptl_db): the last entry is claimed in it, as pthread_key_create does. Where the table is not as it
 * is known here, the public functions are what there is.
 */
#define _GNU_SOURCE
#include "last_key.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

struct entry { /* unused while `seq` is even */
	uintptr_t seq;
	void (*destructor)(void *);
};

struct layout { /* nptl_db: bits of an element, how many there are, offset in bytes */
	uint32_t bits, count, offset;
};

static void *private_symbol(const char *name)
{
	return dlvsym(RTLD_DEFAULT, name, "GLIBC_PRIVATE");
}

static bool lies(const char *name, size_t bits, uint32_t count, size_t offset)
{
	const struct layout *found = private_symbol(name);
	return found && found->bits == bits && (!count || found->count == count) && found->offset == offset;
}

static struct entry *table(void)
{
	const uint32_t *size = private_symbol("_thread_db_sizeof_pthread_key_struct");
	bool known = size && *size == sizeof(struct entry) &&
		     lies("_thread_db___pthread_keys", 8 * sizeof(struct entry), PTW_KEYS, 0) &&
		     lies("_thread_db_pthread_key_struct_seq", 8 * sizeof(uintptr_t), 1, offsetof(struct entry, seq)) &&
		     lies("_thread_db_pthread_key_struct_destr", 8 * sizeof(void *), 1,
			  offsetof(struct entry, destructor));
	return known ? private_symbol("__pthread_keys") : NULL;
}

/* Whether the functions of the C library take the key for one that was made; nothing is allocated. */
static bool is_made(pthread_key_t key)
{
	return pthread_setspecific(key, NULL) == 0;
}

static bool claim(pthread_key_t *key, void (*destructor)(void *))
{
	struct entry *entries = table(), *last = entries ? entries + PTW_KEYS - 1 : NULL;
	uintptr_t seq = last ? __atomic_load_n(&last->seq, __ATOMIC_RELAXED) : 1;
	if (seq & 1 || is_made(PTW_KEYS - 1) || !__atomic_compare_exchange_n(&last->seq, &seq, seq + 1, false, __ATOMIC_ACQUIRE,
						     __ATOMIC_RELAXED))
		return false;
	last->destructor = destructor;
	*key = PTW_KEYS - 1;
	if (is_made(*key))
		return true;
	__atomic_store_n(&last->seq, seq, __ATOMIC_RELEASE);
	return false;
}

bool ptw_last_key(pthread_key_t *key, void (*destructor)(void *))
{
	pthread_key_t keys[PTW_KEYS];
	unsigned count = 0;
	if (claim(key, destructor))
		return true;
	while (count < PTW_KEYS && pthread_key_create(&keys[count], destructor) == 0)
		count++;
	if (count == 0)
		return false;
	*key = keys[--count];
	while (count > 0)
		pthread_key_delete(keys[--count]);
	return true;
}
