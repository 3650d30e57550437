/* SPDX-License-Identifier: MIT */
/* Handlers interrupt each other, on the alternate stack and on the thread's, on a coroutine's too, and may leave by
 * siglongjmp, as often as they like; a thread can be cancelled in one. */
#include "promise.h"

#include <setjmp.h>
#include <ucontext.h>

enum { STACK = 64 << 10, TIMES = 200, NESTED = 5 };

static const int signals[NESTED] = {SIGUSR1, SIGUSR2, SIGHUP, SIGWINCH, SIGURG};
static sigjmp_buf away;
static volatile int handled, cleaned;
static int blocks[2];
static struct gate gate = GATE;
static ucontext_t outer, inner;

/* Each raises the next one. */
static void on_signal(int signal)
{
	int at = 0;
	volatile char frame[2000];
	memset((char *)frame, 1, sizeof frame);
	while (signals[at] != signal)
		at++;
	PROMISE(handled == at);
	handled++;
	if (at + 1 < NESTED)
		PROMISE(raise(signals[at + 1]) == 0 && handled == NESTED);
	PROMISE(frame[at] == 1);
}

static void leave(int signal)
{
	(void)signal;
	siglongjmp(away, 1);
}

static void nest(void)
{
	for (int i = 0; i < TIMES; i++) {
		handled = 0;
		PROMISE(raise(signals[0]) == 0 && handled == NESTED);
	}
	for (volatile int i = 0; i < TIMES; i++)
		if (sigsetjmp(away, 1) == 0) {
			PROMISE(raise(i % 2 ? SIGTERM : SIGQUIT) == 0);
			PROMISE(!"it came back");
		}
}

static void *nest_anywhere(void *unused)
{
	stack_t alternate = {.ss_sp = malloc(STACK), .ss_size = STACK};
	PROMISE(sigaltstack(&alternate, NULL) == 0);
	nest();
	PROMISE(getcontext(&inner) == 0);
	inner.uc_stack.ss_sp = malloc(STACK);
	inner.uc_stack.ss_size = STACK;
	inner.uc_link = &outer;
	makecontext(&inner, nest, 0);
	PROMISE(swapcontext(&outer, &inner) == 0);
	return unused;
}

static void clean(void *unused)
{
	(void)unused;
	cleaned++;
}

static void block(int signal)
{
	char byte;
	(void)signal;
	pthread_cleanup_push(clean, NULL);
	gate_open(&gate, 1);
	PROMISE(read(blocks[0], &byte, 1) < 0);
	pthread_cleanup_pop(0);
}

static void *handle_and_block(void *unused)
{
	stack_t alternate = {.ss_sp = malloc(STACK), .ss_size = STACK};
	PROMISE(sigaltstack(&alternate, NULL) == 0);
	pthread_cleanup_push(clean, NULL);
	PROMISE(raise(SIGALRM) == 0);
	pthread_cleanup_pop(0);
	return unused;
}

int main(void)
{
	struct sigaction action = {.sa_handler = on_signal};
	for (int i = 0; i < NESTED; i++) {
		action.sa_flags = i % 2 ? SA_ONSTACK : 0;
		PROMISE(sigaction(signals[i], &action, NULL) == 0);
	}
	action.sa_handler = leave;
	action.sa_flags = SA_ONSTACK;
	PROMISE(sigaction(SIGTERM, &action, NULL) == 0);
	action.sa_flags = 0;
	PROMISE(sigaction(SIGQUIT, &action, NULL) == 0);
	in_thread(nest_anywhere, NULL);
	nest_anywhere(NULL);
	action.sa_handler = block;
	action.sa_flags = SA_ONSTACK;
	PROMISE(sigaction(SIGALRM, &action, NULL) == 0 && pipe(blocks) == 0);
	pthread_t thread = start(handle_and_block, NULL);
	gate_wait(&gate, 1);
	sleep_ms(20);
	PROMISE(pthread_cancel(thread) == 0 && join(thread) == PTHREAD_CANCELED && cleaned == 2);
	return 0;
}
