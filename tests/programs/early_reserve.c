/* SPDX-License-Identifier: MIT */
/* A library's constructor has reserved memory before main, as mimalloc does, and committed its first part. A thread
 * commits the second and main the third; each sees what the other wrote, and zeros where it was given up. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

enum { PART = 1 << 20 };

char *reserved(void);

static pthread_barrier_t step;
static int wrong;

#define EXPECT(condition) (wrong += (condition) ? 0 : (fprintf(stderr, "not so: %s\n", #condition), 1))

static void commit(char *part)
{
	EXPECT(mprotect(part, PART, PROT_READ | PROT_WRITE) == 0);
}

static void *work(void *unused)
{
	char *memory = reserved();
	memory[5]++;
	commit(memory + PART);
	memory[PART] = 2;
	pthread_barrier_wait(&step);
	pthread_barrier_wait(&step); /* main writes */
	EXPECT(memory[PART] == 3 && memory[2 * PART] == 4 && memory[5] == 0);
	EXPECT(madvise(memory + PART, PART, MADV_DONTNEED) == 0);
	memory[2 * PART]++;
	return unused;
}

int main(void)
{
	char *memory = reserved();
	pthread_t thread;
	pthread_barrier_init(&step, NULL, 2);
	memory[5] = 1;
	pthread_create(&thread, NULL, work, NULL);
	pthread_barrier_wait(&step);
	EXPECT(memory[5] == 2 && memory[PART] == 2);
	memory[PART]++;
	commit(memory + 2 * PART);
	memory[2 * PART] = 4;
	EXPECT(madvise(memory, 4096, MADV_DONTNEED) == 0 && memory[5] == 0);
	pthread_barrier_wait(&step);
	pthread_join(thread, NULL);
	EXPECT(memory[PART] == 0 && memory[2 * PART] == 5);
	printf("%d wrong\n", wrong);
	return wrong != 0;
}
