/* SPDX-License-Identifier: MIT */
/* Unit tests of the object table (preload/src/objects.h). One argument: the case; exits 0 when it holds. */
#define _GNU_SOURCE
#include "check.h"
#include "objects.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, OBJECTS = 500, ROUNDS = 200 };

static struct ptw_object *table;

static void *release_all(void *seed)
{
	for (unsigned round = 0; round < ROUNDS; round++)
		for (unsigned i = 0; i < OBJECTS; i++)
			ptw_object_release(ptw_object_get(table, 0x10000 + 8ull * ((i * 7 + (uintptr_t)seed) % OBJECTS)));
	return NULL;
}

static void every_release_counts_once(void)
{
	pthread_t threads[THREADS];
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, release_all, (void *)i) == 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < OBJECTS; i++)
		CHECK(ptw_object_acquire(ptw_object_get(table, 0x10000 + 8ull * i)) == THREADS * ROUNDS);
}

static void neighbours_are_different_objects(void)
{
	struct ptw_object *plain = ptw_object_get(table, 0x7f0000001000), *handle = ptw_object_get(table, 0x7f0000001001);
	CHECK(plain && handle && plain != handle && ptw_object_get(table, 0x7f0000001008) != plain);
	CHECK(ptw_object_get(table, 0x7f0000001000) == plain);
}

static void a_full_table_says_so(void)
{
	uint64_t places = 0;
	for (uint64_t i = 1; i <= PTW_OBJECTS + 1000ull; i++)
		places += ptw_object_get(table, i * 64) != NULL;
	CHECK(places <= PTW_OBJECTS && places > PTW_OBJECTS * 9ull / 10);
	CHECK(ptw_object_get(table, 64) && ptw_object_get(table, 64)->key == 64); /* what was there still is */
}

static void a_fork_child_begins_with_an_empty_table(void)
{
	int status;
	ptw_object_release(ptw_object_get(table, 64));
	pid_t child = fork();
	if (child == 0)
		_exit(ptw_object_acquire(ptw_object_get(table, 64)) == 0 ? 0 : 1);
	waitpid(child, &status, 0);
	CHECK(status == 0);
	CHECK(ptw_object_acquire(ptw_object_get(table, 64)) == 1);
}

static void names_keep_serial_and_tid(void)
{
	uint64_t name = ptw_thread_name(123456789, 4194303);
	CHECK(ptw_name_serial(name) == 123456789 && ptw_name_tid(name) == 4194303);
}

#define CASE(name) {#name, name}
static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	CASE(every_release_counts_once),
	CASE(neighbours_are_different_objects),
	CASE(a_full_table_says_so),
	CASE(a_fork_child_begins_with_an_empty_table),
	CASE(names_keep_serial_and_tid),
};

int main(int count, char **words)
{
	table = ptw_objects_init();
	CHECK(table);
	for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		if (count < 2)
			puts(cases[i].name);
		else if (strcmp(words[1], cases[i].name) == 0)
			cases[i].run();
	}
	ptw_objects_deinit(table);
	return 0;
}
