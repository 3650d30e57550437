// SPDX-License-Identifier: MIT
/* Reads from an empty pipe, interrupted by a timer: interrupted restart|fail. With restart the handler feeds it. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static int ends[2];
static int signals;

static void handler(int number)
{
	(void)number;
	if (++signals == 3 && write(ends[1], "x", 1) < 0)
		_exit(4);
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = handler};
	struct itimerval timer = {{0, 20000}, {0, 20000}};
	char byte;
	ssize_t got;

	if (argc > 1 && !strcmp(argv[1], "restart"))
		action.sa_flags = SA_RESTART;
	if (pipe(ends) || sigaction(SIGALRM, &action, NULL) || setitimer(ITIMER_REAL, &timer, NULL))
		return 2;
	do
		got = read(ends[0], &byte, 1);
	while (got < 0 && errno == EINTR);
	return got == 1 ? 0 : 3;
}
