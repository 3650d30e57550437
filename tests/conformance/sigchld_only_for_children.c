/* SPDX-License-Identifier: MIT */
/* The end of a thread raises no SIGCHLD; the end of a child that any thread forked does. */
#include "promise.h"

static volatile int deaths;

static void handler(int number) { (void)number; deaths++; }

static void *nothing(void *unused) { return unused; }

static void *fork_one(void *unused)
{
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	int status;
	pid_t got;
	while ((got = waitpid(child, &status, 0)) < 0 && errno == EINTR)
		;
	PROMISE(got == child && status == 0);
	return unused;
}

int main(void)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	sigaction(SIGCHLD, &action, NULL);
	for (int i = 0; i < 20; i++)
		in_thread(nothing, NULL);
	PROMISE(deaths == 0);
	in_thread(fork_one, NULL);
	for (int i = 0; i < 1000 && !deaths; i++)
		sleep_ms(1);
	PROMISE(deaths == 1);
	return 0;
}
