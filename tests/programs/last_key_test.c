/* SPDX-License-Identifier: MIT */
/* The key above all others: claimed in the C library's table, or had through its public functions. */
#define _GNU_SOURCE
#include "check.h"
#include "last_key.h"

#include <string.h>
#include <unistd.h>

enum { LAST = PTW_KEYS - 1, ROUNDS = 4 /* PTHREAD_DESTRUCTOR_ITERATIONS */ };

void *__real_dlvsym(void *handle, const char *name, const char *version);
int __real_pthread_key_create(pthread_key_t *key, void (*destructor)(void *));

static const char *hidden = "", *changed = ""; /* names */
static unsigned created;

void *__wrap_dlvsym(void *handle, const char *name, const char *version)
{
	static uint32_t other[3] = {7, 7, 7};
	if (strcmp(name, changed) == 0)
		return other;
	return strstr(name, hidden) && *hidden ? NULL : __real_dlvsym(handle, name, version);
}

int __wrap_pthread_key_create(pthread_key_t *key, void (*destructor)(void *))
{
	created++;
	return __real_pthread_key_create(key, destructor);
}

static void nothing(void *value) { (void)value; }

/* All others can be had, and only they. */
static void check_highest(pthread_key_t key)
{
	pthread_key_t others[PTW_KEYS];
	CHECK(key == LAST && sysconf(_SC_THREAD_KEYS_MAX) == PTW_KEYS);
	for (unsigned i = 0; i < LAST; i++)
		CHECK(__real_pthread_key_create(&others[i], NULL) == 0 && others[i] < key);
	CHECK(__real_pthread_key_create(&others[LAST], NULL) != 0);
	CHECK(pthread_setspecific(key, &key) == 0 && pthread_getspecific(key) == &key);
	CHECK(pthread_setspecific(key, NULL) == 0 && pthread_key_delete(key) == 0);
	CHECK(__real_pthread_key_create(&key, NULL) == 0 && key == LAST);
}

static void the_highest_is_claimed_and_no_other_is_made_for_it(void)
{
	pthread_key_t key = 0;
	CHECK(ptw_last_key(&key, nothing) && created == 0);
	check_highest(key);
}

static void where_there_is_no_table_it_is_the_highest_all_the_same(void)
{
	pthread_key_t key = 0;
	hidden = "pthread_keys";
	CHECK(ptw_last_key(&key, nothing) && created > LAST);
	check_highest(key);
}

static void a_table_that_is_not_as_it_is_known_is_left_alone(void)
{
	static const char *const names[] = {
		"_thread_db_sizeof_pthread_key_struct", "_thread_db___pthread_keys", "_thread_db_pthread_key_struct_seq",
		"_thread_db_pthread_key_struct_destr",
	};
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
		pthread_key_t key = 0;
		changed = names[i];
		created = 0;
		CHECK(ptw_last_key(&key, nothing) && key == LAST && created > LAST);
		CHECK(pthread_key_delete(key) == 0);
	}
}

static void a_key_that_somebody_has_is_not_taken_from_him(void)
{
	pthread_key_t keys[PTW_KEYS], key = 0;
	for (unsigned i = 0; i < PTW_KEYS; i++)
		CHECK(__real_pthread_key_create(&keys[i], NULL) == 0);
	CHECK(!ptw_last_key(&key, nothing));
	CHECK(pthread_key_delete(keys[5]) == 0);
	CHECK(ptw_last_key(&key, nothing) && key == keys[5]);
}

static pthread_key_t ours, theirs;
static char order[64];

static void call(pthread_key_t key, const char *name, void *value)
{
	strcat(order, name);
	if ((uintptr_t)value < ROUNDS)
		pthread_setspecific(key, (void *)((uintptr_t)value + 1));
}

static void call_ours(void *value) { call(ours, "o", value); }
static void call_theirs(void *value) { call(theirs, "t", value); }

static void *set_both(void *unused)
{
	pthread_setspecific(ours, (void *)1);
	pthread_setspecific(theirs, (void *)1);
	return unused;
}

static void its_destructor_comes_after_others_in_every_round(void)
{
	pthread_t thread;
	CHECK(ptw_last_key(&ours, call_ours) && pthread_key_create(&theirs, call_theirs) == 0);
	CHECK(pthread_create(&thread, NULL, set_both, NULL) == 0 && pthread_join(thread, NULL) == 0);
	CHECK(strcmp(order, "totototo") == 0);
}

#define CASE(name) {#name, name}
static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	CASE(the_highest_is_claimed_and_no_other_is_made_for_it),
	CASE(where_there_is_no_table_it_is_the_highest_all_the_same),
	CASE(a_table_that_is_not_as_it_is_known_is_left_alone),
	CASE(a_key_that_somebody_has_is_not_taken_from_him),
	CASE(its_destructor_comes_after_others_in_every_round),
};

int main(int argc, char **argv)
{
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		if (argc < 2) {
			puts(cases[i].name);
		} else if (strcmp(argv[1], cases[i].name) == 0) {
			cases[i].run();
			return 0;
		}
	}
	return argc < 2 ? 0 : 2;
}
