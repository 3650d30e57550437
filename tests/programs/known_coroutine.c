/* SPDX-License-Identifier: MIT */
/*
 * A thread runs a coroutine, and lends a variable on its stack to another thread: they write to it in turns, each ROUNDS
 * times. Page 0 is the variable's, on which the coroutine's frames lie, too.
 */
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

enum { ROUNDS = 5, STACK = 1 << 16 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int turn;
static volatile long *lent;
static ucontext_t outer, inner;

static void wait_for(int mine)
{
	pthread_mutex_lock(&mutex);
	while (turn != mine)
		pthread_cond_wait(&changed, &mutex);
	pthread_mutex_unlock(&mutex);
}

static void pass_to(int other)
{
	pthread_mutex_lock(&mutex);
	turn = other;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mutex);
}

static void body(void)
{
	volatile long variable = 0;
	lent = &variable;
	printf("page 0 %#lx\n", (unsigned long)&variable & ~4095ul);
	for (long round = 0; round < ROUNDS; round++) {
		variable++;
		pass_to(1);
		wait_for(0);
		CHECK(variable == 2 * (round + 1));
	}
}

static void *run_coroutine(void *unused)
{
	CHECK(getcontext(&inner) == 0);
	inner.uc_stack.ss_sp = malloc(STACK);
	inner.uc_stack.ss_size = STACK;
	inner.uc_link = &outer;
	makecontext(&inner, body, 0);
	CHECK(swapcontext(&outer, &inner) == 0);
	return unused;
}

static void *take_turns(void *unused)
{
	for (int round = 0; round < ROUNDS; round++) {
		wait_for(1);
		++*lent;
		pass_to(0);
	}
	return unused;
}

int main(void)
{
	pthread_t threads[2];
	pthread_create(&threads[0], NULL, run_coroutine, NULL);
	pthread_create(&threads[1], NULL, take_turns, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
