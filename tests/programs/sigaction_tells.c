/* SPDX-License-Identifier: MIT */
/* What sigaction tells of each signal that has an action: first none, then a handler, ignored and the default by signal(). */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

static void handler(int number) { (void)number; }

static void *body(void *value) { return value; }

static void tell(int number)
{
	struct sigaction is;

	if (sigaction(number, NULL, &is) != 0)
		printf(" error");
	else
		printf(" %s %x %d%d", is.sa_handler == handler ? "handler" : is.sa_handler == SIG_IGN ? "ignored" : "default",
		       (unsigned)is.sa_flags, sigismember(&is.sa_mask, SIGHUP), sigismember(&is.sa_mask, number));
}

int main(void)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART | SA_ONSTACK};
	pthread_t thread;

	sigaddset(&action.sa_mask, SIGHUP);
	pthread_create(&thread, NULL, body, NULL);
	pthread_join(thread, NULL);
	for (int number = 1; number < SIGRTMAX; number++) { /* the last one is a software engine's own */
		printf("%d", number);
		tell(number);
		sigaction(number, &action, NULL);
		tell(number);
		signal(number, SIG_IGN);
		tell(number);
		signal(number, SIG_DFL);
		tell(number);
		printf("\n");
	}
	return 0;
}
