/* SPDX-License-Identifier: MIT */
/* Threads run on stacks of coroutines: another thread changes what lies on them, they synchronise, and signals are handled
 * there. */
#include "promise.h"

#include <semaphore.h>
#include <sys/time.h>
#include <ucontext.h>

enum { THREADS = 3, COROUTINES = 4, SIZE = 20000, ROUNDS = 60, DEPTH = 24 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char *stacks;
static volatile long *lent; /* lies on a coroutine's stack */
static long rounds;
static int ended;
static sem_t rung;
static ucontext_t outers[THREADS];

static _Thread_local ucontext_t *outer, *inner;
static _Thread_local int done;

static void on_signal(int signal)
{
	(void)signal;
	sem_post(&rung);
}

static int deep(int depth)
{
	volatile char frame[600];
	memset((char *)frame, depth, sizeof frame);
	return depth ? deep(depth - 1) + frame[depth] - depth : 0;
}

static void body(void)
{
	volatile long changed = 0;
	for (int i = 0; i < ROUNDS; i++) {
		long before = i;
		PROMISE(deep(i % DEPTH) == 0);
		pthread_mutex_lock(&mutex);
		lent = &changed;
		rounds++;
		pthread_mutex_unlock(&mutex);
		PROMISE(swapcontext(inner, outer) == 0);
		PROMISE(before == i);
	}
	pthread_mutex_lock(&mutex);
	if (lent == &changed)
		lent = NULL;
	pthread_mutex_unlock(&mutex);
	while (!changed) { /* the other thread comes by */
		pthread_mutex_lock(&mutex);
		lent = &changed;
		pthread_mutex_unlock(&mutex);
		sleep_ms(1);
		pthread_mutex_lock(&mutex);
		lent = NULL;
		pthread_mutex_unlock(&mutex);
	}
	done++;
}

static void prepare(ucontext_t *coroutine, char *stack)
{
	PROMISE(getcontext(coroutine) == 0);
	coroutine->uc_stack.ss_sp = stack;
	coroutine->uc_stack.ss_size = SIZE;
	coroutine->uc_link = outer;
	makecontext(coroutine, body, 0);
}

static void *run(void *number)
{
	ucontext_t all[COROUTINES];
	outer = &outers[(intptr_t)number];
	for (int i = 0; i < COROUTINES; i++)
		prepare(&all[i], stacks + SIZE * (i * THREADS + (intptr_t)number));
	for (int round = 0; round < ROUNDS + 1; round++)
		for (int i = 0; i < COROUTINES; i++) {
			inner = &all[i];
			PROMISE(swapcontext(outer, inner) == 0);
		}
	PROMISE(done == COROUTINES);
	return NULL;
}

static void *change(void *unused)
{
	for (int stop = 0; !stop; sched_yield()) {
		pthread_mutex_lock(&mutex);
		if (lent)
			++*lent;
		stop = ended;
		pthread_mutex_unlock(&mutex);
	}
	return unused;
}

int main(void)
{
	const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	const struct itimerval often = {{0, 1000}, {0, 1000}};
	pthread_t threads[THREADS], other;
	stacks = malloc(SIZE * THREADS * COROUTINES);
	PROMISE(sem_init(&rung, 0, 0) == 0);
	PROMISE(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
	other = start(change, NULL);
	for (intptr_t i = 0; i < THREADS; i++)
		threads[i] = start(run, (void *)i);
	for (int i = 0; i < THREADS; i++)
		join(threads[i]);
	pthread_mutex_lock(&mutex);
	ended = 1;
	pthread_mutex_unlock(&mutex);
	join(other);
	PROMISE(rounds == THREADS * COROUTINES * ROUNDS && sem_trywait(&rung) == 0);
	return 0;
}
