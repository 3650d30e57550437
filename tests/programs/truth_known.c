/* SPDX-License-Identifier: MIT */
/*
 * Accesses that are known: every way in which a program touches memory, once. Prints for each "THREAD EPOCH KIND
 * ADDRESS LENGTH"; KIND is r (read), w (written, and different after it) or s (written as it was). Threads run one
 * after the other; an epoch of theirs ends where they lock and unlock a mutex, each once.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 4096 };

struct large {
	char bytes[300];
};

static char global[4 * PAGE] __attribute__((aligned(4096)));
static struct large from = {"large"}, to;
static uint64_t word;
static uint32_t counter;
static __uint128_t wide = 1;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char *heap;

static void tell(int thread, int epoch, char kind, const volatile void *where, size_t size)
{
	printf("%d %d %c %p %zu\n", thread, epoch, kind, (const void *)where, size);
}

static void *first(void *argument)
{
	volatile char *memory = global;
	int *local = argument;
	memory[PAGE - 1] = 1;
	memory[PAGE] = 0;
	*(volatile uint64_t *)(global + 100) = 0x0101010101010101;
	(void)*(volatile uint16_t *)(global + 200);
	tell(1, 0, 'w', &global[PAGE - 1], 1), tell(1, 0, 's', &global[PAGE], 1);
	tell(1, 0, 'w', global + 100, 8), tell(1, 0, 'r', global + 200, 2);
	*local += 1;
	tell(1, 0, 'r', local, 4), tell(1, 0, 'w', local, 1);
	pthread_mutex_lock(&mutex);
	memcpy(heap, global, 3 * PAGE);
	memset(global + 3 * PAGE, 7, 10);
	tell(1, 1, 'r', global, 3 * PAGE);
	tell(1, 1, 'w', heap + 100, 8), tell(1, 1, 'w', heap + PAGE - 1, 1), tell(1, 1, 's', heap + 2 * PAGE, PAGE);
	tell(1, 1, 'w', global + 3 * PAGE, 10);
	pthread_mutex_unlock(&mutex);
	memory[5] = 1;
	memory[5] = 0;
	tell(1, 2, 's', global + 5, 1);
	return NULL;
}

static void through_the_kernel(int thread, int epoch)
{
	char *to = global + 3 * PAGE + 1000;
	int ends[2];
	if (pipe(ends) || write(ends[1], global + 2 * PAGE + 50, 40) != 40 || read(ends[0], to, 2000) != 40)
		abort();
	tell(thread, epoch, 'r', global + 2 * PAGE + 50, 40), tell(thread, epoch, 's', to, 40);
	if (write(ends[1], from.bytes, 5) != 5 || read(ends[0], to, 2000) != 5)
		abort();
	tell(thread, epoch, 'w', to, 5);
}

static void *second(void *unused)
{
	to = from;
	tell(2, 0, 'r', &from, sizeof from), tell(2, 0, 'w', &to, 5), tell(2, 0, 's', to.bytes + 5, sizeof to - 5);
	__atomic_fetch_add(&counter, 1, __ATOMIC_SEQ_CST);
	tell(2, 0, 'r', &counter, 4), tell(2, 0, 'w', &counter, 1);
	pthread_mutex_lock(&mutex);
	word = 0x8000000000000000;
	tell(2, 1, 'w', (char *)&word + 7, 1), tell(2, 1, 's', &word, 7);
	strcpy(heap + PAGE - 3, "abcd");
	tell(2, 1, 'w', heap + PAGE - 3, 4);
	if (strlen(heap + PAGE - 3) != 4)
		abort();
	tell(2, 1, 'r', heap + PAGE - 3, 5);
	pthread_mutex_unlock(&mutex);
	wide += 1;
	tell(2, 2, 'r', &wide, 16), tell(2, 2, 'w', &wide, 1);
	through_the_kernel(2, 2);
	return unused;
}

int main(void)
{
	pthread_t thread;
	int local = 5;
	heap = aligned_alloc(PAGE, 3 * PAGE);
	memset(heap, 0, 3 * PAGE);
	pthread_create(&thread, NULL, first, &local);
	pthread_join(thread, NULL);
	pthread_create(&thread, NULL, second, NULL);
	pthread_join(thread, NULL);
	return 0;
}
