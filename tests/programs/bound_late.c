/* SPDX-License-Identifier: MIT */
/* Functions of a library are bound at their first call (-z lazy): the loader writes to the program's table then. */
#include <pthread.h>
#include <stddef.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long total;

__attribute__((noinline)) static void binds_in_the_thread(void)
{
	pthread_mutex_lock(&lock);
	total++;
	pthread_mutex_unlock(&lock);
}

static void *work(void *unused)
{
	binds_in_the_thread();
	return unused;
}

int main(void)
{
	pthread_t a, b;
	pthread_create(&a, NULL, work, NULL);
	pthread_create(&b, NULL, work, NULL);
	pthread_join(a, NULL);
	pthread_join(b, NULL);
	return total != 2;
}
