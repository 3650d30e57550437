/* SPDX-License-Identifier: MIT */
/* Notices; notice.h says what is guaranteed. */
#define _GNU_SOURCE
#include "notice.h"

#include "handshake.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>
#include <sys/auxv.h>

enum { WAITING = 16 };

enum state { EMPTY = 0, WRITING = 1, TOLD = 2 };

/* Where notices go: this process's own table first, the lists once there are some. */
static struct ptw_notice own[WAITING];
static struct ptw_lists *lists;
static uint32_t alone;

struct table {
	struct ptw_notice *notice;
	uint32_t *count; /* claimed; may be beyond the table's end */
	uint32_t size;
};

static struct table table_of(struct ptw_lists *there)
{
	static uint32_t own_count;
	if (there)
		return (struct table){there->notice, &there->notices, PTW_NOTICES};
	return (struct table){own, &own_count, WAITING};
}

static void copy(char *ret, size_t size, const char *text)
{
	size_t used = strnlen(text, size - 1);
	memcpy(ret, text, used);
	ret[used] = '\0';
}

/* Not there in libraries older than glibc 2.35: then places have no file. */
int _dl_find_object(void *, struct dl_find_object *) __attribute__((weak));

static void locate(struct ptw_notice_place *place, const void *address)
{
	struct dl_find_object object;
	place->address = (uint64_t)address;
	if (!address || !_dl_find_object || _dl_find_object((void *)(uintptr_t)address, &object) != 0)
		return;
	const struct link_map *map = object.dlfo_link_map;
	place->known = 1;
	place->offset = (uint64_t)address - map->l_addr;
	const char *path = map->l_name, *program = (const char *)getauxval(AT_EXECFN);
	copy(place->path, sizeof place->path, *path || !program ? path : program);
}

/* Without a place in the code it is the memory and the words that tell two notices of a kind apart. */
static bool is_it(const struct ptw_notice *one, enum ptw_notice_kind kind, const void *code, const void *object,
		  const char *text)
{
	return one->kind == (uint32_t)kind && one->code.address == (uint64_t)code &&
	       (code || (one->object.address == (uint64_t)object && strncmp(one->text, text, sizeof one->text - 1) == 0));
}

static bool told(const struct table *table, enum ptw_notice_kind kind, const void *code, const void *object,
		 const char *text)
{
	uint32_t count = __atomic_load_n(table->count, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < count && i < table->size; i++) {
		const struct ptw_notice *one = &table->notice[i];
		if (__atomic_load_n(&one->state, __ATOMIC_ACQUIRE) == TOLD && is_it(one, kind, code, object, text))
			return true;
	}
	return false;
}

/* A free entry; NULL when there is none. */
static struct ptw_notice *claim(const struct table *table)
{
	uint32_t count = __atomic_load_n(table->count, __ATOMIC_RELAXED);
	while (count < table->size)
		if (__atomic_compare_exchange_n(table->count, &count, count + 1, false, __ATOMIC_ACQ_REL,
						__ATOMIC_RELAXED))
			return &table->notice[count];
	return NULL;
}

int ptw_notice_about(enum ptw_notice_kind kind, const void *code, const void *object, const char *text)
{
	struct ptw_lists *there = __atomic_load_n(&lists, __ATOMIC_ACQUIRE);
	struct table table = table_of(there);
	if (told(&table, kind, code, object, text))
		return 1;
	struct ptw_notice *one = claim(&table);
	if (!one) {
		if (there)
			__atomic_fetch_add(&there->notices_lost, 1, __ATOMIC_RELAXED);
		return -ENOSPC;
	}
	__atomic_store_n(&one->state, WRITING, __ATOMIC_RELAXED);
	one->kind = kind;
	one->tid = (uint32_t)ptw_gettid();
	locate(&one->code, code);
	locate(&one->object, object);
	copy(one->text, sizeof one->text, text);
	__atomic_store_n(&one->state, TOLD, __ATOMIC_RELEASE);
	if (!there && __atomic_load_n(&alone, __ATOMIC_ACQUIRE))
		ptw_say(one->text);
	return 0;
}

int ptw_notice(enum ptw_notice_kind kind, const void *code, const char *text)
{
	return ptw_notice_about(kind, code, NULL, text);
}

/* What waits in this process's own table, once. */
static void each_waiting(void (*function)(const struct ptw_notice *))
{
	static uint32_t done;
	struct table table = table_of(NULL);
	for (; done < *table.count && done < table.size; done++)
		if (own[done].state == TOLD)
			function(&own[done]);
}

static void tell_again(const struct ptw_notice *one)
{
	ptw_notice_about((enum ptw_notice_kind)one->kind, (const void *)one->code.address,
			 (const void *)one->object.address, one->text);
}

static void say(const struct ptw_notice *one) { ptw_say(one->text); }

void ptw_notices_begin(struct ptw_lists *there)
{
	__atomic_store_n(&lists, there, __ATOMIC_RELEASE);
	each_waiting(tell_again);
}

void ptw_notices_alone(void)
{
	__atomic_store_n(&lists, NULL, __ATOMIC_RELEASE);
	__atomic_store_n(&alone, 1, __ATOMIC_RELEASE);
	each_waiting(say);
}
