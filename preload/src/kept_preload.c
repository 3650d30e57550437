/* SPDX-License-Identifier: MIT */
/* Keeping libtthread in programs that are started with another LD_PRELOAD; kept_preload.h says when. */
#define _GNU_SOURCE /* stpcpy */
#include "kept_preload.h"

#include "handshake.h"

#include <linux/limits.h>
#include <stdbool.h>
#include <string.h>

#define PRELOAD "LD_PRELOAD="
#define NAME "/libtthread.so"
#define SEPARATORS ": "

static char own[PATH_MAX];

static bool ends_so(const char *part, size_t length)
{
	const size_t size = sizeof NAME - 1;
	return length >= size && memcmp(part + length - size, NAME, size) == 0;
}

/* The part of a list of libraries that names libtthread. */
static const char *find(const char *list, size_t *ret)
{
	while (*list) {
		size_t length = strcspn(list, SEPARATORS);
		*ret = length;
		if (ends_so(list, length))
			return list;
		list += length;
		list += strspn(list, SEPARATORS);
	}
	return NULL;
}

void ptw_kept_preload_init(const char *preload)
{
	size_t length;
	const char *part = preload ? find(preload, &length) : NULL;
	if (part && length < sizeof own)
		memcpy(own, part, length); /* the rest is zero */
}

static const char *value_of(const char *entry, const char *name, size_t size)
{
	return strncmp(entry, name, size) == 0 ? entry + size : NULL;
}

/* Where the LD_PRELOAD is that is to be changed, and how many entries there are; SIZE_MAX: none. The loader takes the last
 * one. */
static size_t place(char *const *environment, size_t *ret)
{
	size_t found = SIZE_MAX, count = 0, length;
	bool ours = false;
	for (; environment[count]; count++) {
		const char *entry = environment[count];
		ours = ours || value_of(entry, PTW_SOCKET_VARIABLE "=", sizeof PTW_SOCKET_VARIABLE);
		if (value_of(entry, PRELOAD, sizeof PRELOAD - 1))
			found = count;
	}
	*ret = count;
	if (!ours || found == SIZE_MAX)
		return SIZE_MAX;
	const char *list = environment[found] + sizeof PRELOAD - 1;
	return list[strspn(list, SEPARATORS)] && !find(list, &length) ? found : SIZE_MAX;
}

/* Of `count` entries, one of which is changed: of it the value, a separator and the end. */
static size_t size_of(const char *entry, size_t count)
{
	return (count + 1) * sizeof entry + strlen(entry) + strlen(own) + 2;
}

size_t ptw_kept_preload_room(char *const *environment)
{
	size_t count, at = own[0] && environment ? place(environment, &count) : SIZE_MAX;
	size_t bytes = at == SIZE_MAX ? 0 : size_of(environment[at], count);
	return bytes <= PTW_KEPT_MOST ? bytes : 0;
}

char *const *ptw_kept_preload(char *const *environment, void *room, size_t bytes)
{
	size_t count, at = place(environment, &count);
	if (at == SIZE_MAX || size_of(environment[at], count) > bytes)
		return environment;
	char **changed = room, *value = (char *)(changed + count + 1);
	memcpy(changed, environment, (count + 1) * sizeof *changed);
	changed[at] = value;
	value = stpcpy(value, PRELOAD);
	value = stpcpy(value, own);
	value = stpcpy(value, ":");
	strcpy(value, environment[at] + sizeof PRELOAD - 1);
	return changed;
}
