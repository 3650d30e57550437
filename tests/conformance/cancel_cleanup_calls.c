/* SPDX-License-Identifier: MIT */
/* A thread that is cancelled in a call that waits may wait, create and write in its cleanup handlers. */
#include "promise.h"

enum { BYTES = 3 };

static int blocks[2], answers[2];
static pthread_t made;
static struct gate gate = GATE;

static void *until_cancelled(void *unused)
{
	gate_open(&gate, 2);
	for (;;)
		pause();
	return unused;
}

static void write_a_byte(void *unused)
{
	(void)unused;
	PROMISE(write(answers[1], "w", 1) == 1);
}

static void sleep_and_write(void *unused)
{
	sleep_ms(20);
	write_a_byte(unused);
}

static void create_and_write(void *unused)
{
	made = start(until_cancelled, NULL);
	write_a_byte(unused);
}

static void *block(void *unused)
{
	char byte;
	pthread_cleanup_push(write_a_byte, NULL);
	pthread_cleanup_push(sleep_and_write, NULL);
	pthread_cleanup_push(create_and_write, NULL);
	gate_open(&gate, 1);
	PROMISE(read(blocks[0], &byte, 1) < 0);
	pthread_cleanup_pop(0);
	pthread_cleanup_pop(0);
	pthread_cleanup_pop(0);
	return unused;
}

int main(void)
{
	char bytes[BYTES + 1];
	PROMISE(pipe(blocks) == 0 && pipe(answers) == 0);
	pthread_t thread = start(block, NULL);
	gate_wait(&gate, 1);
	sleep_ms(20); /* it is in the call by now */
	PROMISE(pthread_cancel(thread) == 0 && join(thread) == PTHREAD_CANCELED);
	PROMISE(read(answers[0], bytes, sizeof bytes) == BYTES);
	gate_wait(&gate, 2);
	PROMISE(pthread_cancel(made) == 0 && join(made) == PTHREAD_CANCELED);
	return 0;
}
