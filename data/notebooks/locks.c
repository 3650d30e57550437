/* SPDX-License-Identifier: MIT */
/*
 * A program that should run on all processors, and does not: workers take orders from a queue and price them at once,
 * but then each writes a line into one log, and makes that line while it holds the log's lock.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { WORKERS = 3, ORDERS = 30, WIDTH = 1 << 16 };

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t ready;
static int next_order;
static char log_line[WIDTH];
static unsigned long log_sum;

__attribute__((noinline)) static int take_order(void)
{
	pthread_mutex_lock(&queue_lock);
	int order = next_order < ORDERS ? next_order++ : -1;
	pthread_mutex_unlock(&queue_lock);
	return order;
}

__attribute__((noinline)) static unsigned long price(int order)
{
	unsigned long sum = (unsigned long)order;
	for (int i = 0; i < 2000; i++)
		sum = sum * 31 + (unsigned long)i;
	return sum;
}

/* slow: it pads the whole line for every digit */
__attribute__((noinline)) static void format_line(unsigned long value)
{
	for (int digit = 0; digit < 20; digit++) {
		for (int at = 0; at < WIDTH; at++)
			log_line[at] = at == digit ? (char)('0' + value % 10) : log_line[at] ? log_line[at] : ' ';
		value /= 10;
	}
}

__attribute__((noinline)) static void write_log(unsigned long value)
{
	pthread_mutex_lock(&log_lock);
	format_line(value);
	for (int at = 0; at < WIDTH; at++)
		log_sum += (unsigned char)log_line[at];
	pthread_mutex_unlock(&log_lock);
}

static void *worker(void *argument)
{
	int order;
	pthread_barrier_wait(&ready);
	while ((order = take_order()) >= 0)
		write_log(price(order));
	return argument;
}

int main(void)
{
	pthread_t threads[WORKERS];
	pthread_barrier_init(&ready, NULL, WORKERS);
	for (int i = 0; i < WORKERS; i++)
		pthread_create(&threads[i], NULL, worker, NULL);
	for (int i = 0; i < WORKERS; i++)
		pthread_join(threads[i], NULL);
	printf("%d orders, log sum %lu\n", ORDERS, log_sum);
	return 0;
}
