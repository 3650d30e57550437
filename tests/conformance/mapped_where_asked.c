/* SPDX-License-Identifier: MIT */
/* Memory that a program maps at addresses it chooses is there for all threads, whichever of them maps it, reserves it
 * first and commits it later, gives its contents up or takes it back, and whether they lived then or not; a library that
 * is loaded may do so, too. */
#include "promise.h"

#include <dlfcn.h>

enum { SIZE = 1 << 20, LOCKED = 5000 };

static char *const base = (char *)0x710000000;

static char *at(int part) { return base + part * 2 * SIZE; }

static char *map(char *place, int protection, int how)
{
	char *got = mmap(place, SIZE, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | how, -1, 0);
	PROMISE(got == place);
	return got;
}

/* A thread that lives all the time does what main tells it to. */
static pthread_barrier_t step;
static void (*task)(void);

static void *serve(void *unused)
{
	for (;;) {
		pthread_barrier_wait(&step);
		if (!task)
			return unused;
		task();
		pthread_barrier_wait(&step);
	}
}

static void other(void (*does)(void))
{
	task = does;
	pthread_barrier_wait(&step);
	if (does)
		pthread_barrier_wait(&step);
}

static void write_first(void) { at(0)[10] = 7; }
static void map_second(void) { map(at(1), PROT_READ | PROT_WRITE, MAP_FIXED_NOREPLACE)[10] = 8; }
static void use_first_page(void) { at(2)[10]++; }
static void commit_second_page(void)
{
	PROMISE(mprotect(at(2) + PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
	at(2)[PAGE + 10] = 5;
}
static void commit_and_look(void)
{
	map(at(3), PROT_READ | PROT_WRITE, MAP_FIXED);
	PROMISE(at(3)[10] == 0);
	at(3)[20] = 4;
}
static void look_and_write(void)
{
	PROMISE(at(4)[10] == 0 && at(4)[PAGE + 10] == 6);
	at(4)[10] = 9;
}

static void given_up_and_taken_back(void)
{
	map(at(3), PROT_READ | PROT_WRITE, MAP_FIXED)[10] = 3;
	map(at(3), PROT_NONE, MAP_FIXED);
	other(commit_and_look);
	PROMISE(at(3)[10] == 0 && at(3)[20] == 4);
	map(at(4), PROT_READ | PROT_WRITE, MAP_FIXED)[10] = 3;
	at(4)[PAGE + 10] = 6;
	PROMISE(madvise(at(4), PAGE, MADV_DONTNEED) == 0 && at(4)[10] == 0);
	other(look_and_write);
	PROMISE(at(4)[10] == 9);
	PROMISE(munmap(at(4), SIZE) == 0 && map(at(4), PROT_READ | PROT_WRITE, MAP_FIXED_NOREPLACE)[PAGE + 10] == 0);
}

static void *count(void *lock)
{
	for (int i = 0; i < LOCKED; i++) {
		pthread_mutex_lock(lock);
		++*(long *)(at(5) + 2 * PAGE);
		pthread_mutex_unlock(lock);
	}
	return NULL;
}

static void locks_lie_there(void)
{
	pthread_mutex_t *lock = (pthread_mutex_t *)map(at(5), PROT_READ | PROT_WRITE, MAP_FIXED_NOREPLACE);
	pthread_t one = start(count, lock), two = start(count, lock);
	count(lock);
	join(one);
	join(two);
	PROMISE(*(long *)(at(5) + 2 * PAGE) == 3 * LOCKED);
}

static char *moved;

static void look_at_moved(void)
{
	PROMISE(moved[10] == 1 && moved[SIZE - 1] == 2 && moved[SIZE] == 0);
	moved[SIZE + 10] = 3;
}

static void made_longer_and_shorter(void)
{
	char *place = base + (32 << 20), *other_place = place + (16 << 20);
	map(place, PROT_READ | PROT_WRITE, MAP_FIXED_NOREPLACE);
	map(place + SIZE, PROT_READ | PROT_WRITE, MAP_FIXED_NOREPLACE)[10] = 9;
	place[10] = 1;
	place[SIZE - 1] = 2;
	PROMISE(mremap(place, SIZE, 2 * SIZE, 0) == MAP_FAILED && errno == ENOMEM);
	moved = mremap(place, SIZE, 2 * SIZE, MREMAP_MAYMOVE);
	PROMISE(moved != MAP_FAILED && moved != place);
	other(look_at_moved);
	PROMISE(moved[SIZE + 10] == 3 && place[SIZE + 10] == 9);
	PROMISE(mremap(moved, 2 * SIZE, 2 * SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, other_place) == other_place);
	moved = other_place;
	moved[SIZE] = 0;
	other(look_at_moved);
	PROMISE(mremap(moved, 2 * SIZE, PAGE, 0) == moved && moved[10] == 1);
	map(moved + SIZE, PROT_READ | PROT_WRITE, MAP_FIXED_NOREPLACE);
	PROMISE(moved[SIZE + 10] == 0);
}

static char path[4096];

static void load(void)
{
	void *library = dlopen(path, RTLD_NOW);
	PROMISE(library);
	char **mapped = dlsym(library, "mapped_by_library");
	PROMISE(mapped && (*mapped)[20] == 2);
	(*mapped)[20] = 3;
}

int main(int argc, char **argv)
{
	PROMISE(argc > 0);
	snprintf(path, sizeof path, "%s.library.so", argv[0]);
	pthread_barrier_init(&step, NULL, 2);
	map(at(2), PROT_NONE, MAP_FIXED_NOREPLACE);
	pthread_t server = start(serve, NULL);
	map(at(0), PROT_READ | PROT_WRITE, MAP_FIXED_NOREPLACE)[10] = 1;
	other(write_first);
	PROMISE(at(0)[10] == 7);
	other(map_second);
	PROMISE(at(1)[10] == 8);
	PROMISE(mprotect(at(2), PAGE, PROT_READ | PROT_WRITE) == 0);
	at(2)[10] = 4;
	other(use_first_page);
	other(commit_second_page);
	PROMISE(at(2)[10] == 5 && at(2)[PAGE + 10] == 5);
	given_up_and_taken_back();
	locks_lie_there();
	made_longer_and_shorter();
	other(load);
	PROMISE(((char *)0x720000000)[20] == 3);
	other(NULL);
	join(server);
	return 0;
}
