/* SPDX-License-Identifier: MIT */
/* What handlers block while they run, by each way to set them and each way to get there, as they see it themselves. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RESTORER = 0x04000000 }; /* of the C library's own */

static const int shown[] = {SIGUSR1, SIGUSR2, SIGHUP, SIGWINCH, SIGSEGV};
static char seen[512];
static sigjmp_buf back;
static int nested;

static void show(const char *when)
{
	sigset_t now;
	char text[64] = "";

	pthread_sigmask(SIG_BLOCK, NULL, &now);
	for (unsigned i = 0; i < sizeof shown / sizeof *shown; i++)
		strcat(text, sigismember(&now, shown[i]) ? "1" : "0");
	strcat(strcat(strcat(seen, when), text), " ");
}

static void second(int number)
{
	(void)number;
	show("second:");
}

static void first(int number)
{
	show("first:");
	if (nested-- > 0) {
		raise(SIGUSR2); /* comes now, or when this returns */
		raise(number);  /* again, where it is not deferred */
		show("then:");
	}
	if (number == SIGSEGV)
		siglongjmp(back, 1);
}

static void set(int number, void (*handler)(int), int flags, int also)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags}, is;

	if (also)
		sigaddset(&action.sa_mask, also);
	sigaction(number, &action, NULL);
	sigaction(number, NULL, &is);
	if ((is.sa_flags & ~RESTORER) != flags || sigismember(&is.sa_mask, also ? also : SIGHUP) != !!also)
		abort();
}

/* A handler with these flags, that blocks `also`, is reached by a signal sent and by a fault. */
static void *try(void *argument)
{
	const int *with = argument;

	for (nested = 0; nested < 2; nested++) {
		const int depth = nested;

		seen[0] = 0;
		set(SIGUSR2, second, 0, 0);
		set(SIGUSR1, first, with[0], with[1]);
		raise(SIGUSR1);
		nested = depth;
		show("after:");
		set(SIGSEGV, first, with[0], with[1]);
		if (!depth && !sigsetjmp(back, 1))
			*(volatile int *)8 = 1;
		nested = depth;
		show("after:");
		printf("%x %d %d %s\n", with[0], with[1], depth, seen);
	}
	return NULL;
}

int main(void)
{
	static const int flags[] = {0, SA_NODEFER, SA_NODEFER | SA_ONSTACK, SA_ONSTACK, SA_NODEFER | SA_RESTART};
	static const int others[] = {0, SIGUSR1, SIGUSR2, SIGWINCH};
	static char stack[1 << 16];
	const stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
	sigset_t blocked;

	sigaltstack(&other, NULL);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &blocked, NULL);
	for (unsigned i = 0; i < sizeof flags / sizeof *flags; i++) {
		for (unsigned j = 0; j < sizeof others / sizeof *others; j++) {
			int with[] = {flags[i], others[j]};
			pthread_t thread;

			try(with);
			if (!(flags[i] & SA_ONSTACK) && !pthread_create(&thread, NULL, try, with))
				pthread_join(thread, NULL);
		}
	}
	return 0;
}
