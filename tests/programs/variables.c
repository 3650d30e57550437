/* SPDX-License-Identifier: MIT */
/* Locks and data in variables, whose addresses it tells: name and address a line. */
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	long count;
	pthread_mutex_t lock;
} pool = { 0, PTHREAD_MUTEX_INITIALIZER };
static long total[1024] = { 1 };

static void *work(void *unused)
{
	for (int i = 0; i < 3; i++) {
		pthread_mutex_lock(&table_lock);
		total[600] += i;
		pthread_mutex_unlock(&table_lock);
		pthread_mutex_lock(&pool.lock);
		pool.count++;
		pthread_mutex_unlock(&pool.lock);
	}
	return unused;
}

int main(void)
{
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	pthread_mutex_lock(&table_lock); /* what main does last is always on the critical path */
	pthread_mutex_unlock(&table_lock);
	printf("table_lock %p\npool+0x8 %p\ntotal+0x12c0 %p\n", (void *)&table_lock, (void *)&pool.lock,
	       (void *)&total[600]);
	return 0;
}
