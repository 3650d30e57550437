/* SPDX-License-Identifier: MIT */
/* A ring: a file's memory mapped twice behind itself, where a place was reserved for both. All threads have it, also
 * those that lived before, and children of fork; system calls read and write there, locks lie in it, and when it is
 * unmapped nothing more comes to the file. */
#include "promise.h"

enum { SIZE = 65536, LOCKED = 5000 };

static pthread_barrier_t step;
static char *ring;

static char *reserve(void)
{
	char *got = mmap(NULL, 2 * SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	PROMISE(got != MAP_FAILED);
	return got;
}

static void overlay(char *place, int file)
{
	PROMISE(mmap(place, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == place);
}

static void *live_all_the_time(void *unused)
{
	int ends[2];
	char got[4] = "";
	pthread_barrier_wait(&step);
	PROMISE(ring[SIZE + 5] == 7 && pipe(ends) == 0);
	ring[SIZE + 6] = 'x';
	PROMISE(write(ends[1], ring + SIZE - 1, 9) == 9 && read(ends[0], ring + SIZE + 100, 9) == 9);
	PROMISE(ring[100 + 7] == 'x' && write(ends[1], "abc", 3) == 3 && read(ends[0], got, 3) == 3 && got[2] == 'c');
	close(ends[0]);
	close(ends[1]);
	pthread_barrier_wait(&step);
	return unused;
}

static void *count(void *unused)
{
	for (int i = 0; i < LOCKED; i++) {
		pthread_mutex_lock((pthread_mutex_t *)(ring + 4096));
		++*(long *)(ring + SIZE + 8192);
		pthread_mutex_unlock((pthread_mutex_t *)(ring + 4096));
	}
	return unused;
}

static void *fill(void *place)
{
	memset(place, 3, 2 * SIZE);
	return place;
}

static void child_has_it(void)
{
	pid_t child = fork();
	int status;
	if (child == 0) {
		ring[SIZE + 20] = ring[6] == 'x' ? 4 : 5;
		_exit(0);
	}
	PROMISE(waitpid(child, &status, 0) == child && status == 0 && ring[20] == 4);
}

int main(void)
{
	int file = (int)syscall(SYS_memfd_create, "ring", 0);
	char byte = 1;
	pthread_barrier_init(&step, NULL, 2);
	pthread_t before = start(live_all_the_time, NULL);
	PROMISE(ftruncate(file, SIZE) == 0);
	ring = reserve();
	overlay(ring, file);
	overlay(ring + SIZE, file);
	ring[5] = 7;
	pthread_barrier_wait(&step);
	pthread_barrier_wait(&step);
	PROMISE(ring[6] == 'x' && ring[SIZE + 107] == 'x');
	join(before);
	pthread_t one = start(count, NULL), two = start(count, NULL);
	count(NULL);
	join(one);
	join(two);
	PROMISE(*(long *)(ring + 8192) == 3 * LOCKED);
	child_has_it();
	PROMISE(mmap(ring + SIZE, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
		ring + SIZE && ring[SIZE + 6] == 0 && ring[6] == 'x');
	ring[SIZE + 6] = 9;
	PROMISE(pread(file, &byte, 1, 6) == 1 && byte == 'x' && munmap(ring, 2 * SIZE) == 0);
	for (int i = 0; i < 8; i++) {
		char *again = mmap(NULL, 2 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		PROMISE(again[5] == 0 && again[SIZE + 6] == 0);
		in_thread(fill, again);
		PROMISE(again[6] == 3 && again[2 * SIZE - 1] == 3);
	}
	PROMISE(pread(file, &byte, 1, 5) == 1 && byte == 7);
	return 0;
}
