/* SPDX-License-Identifier: MIT */
/* read, nanosleep, pause, accept, poll and waitpid are cancellation points, also when the thread waits in them
 * already. */
#include "promise.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

static int ends[2], listener;

static void wait_in(long which)
{
	char byte;
	switch (which) {
	case 0:
		(void)!read(ends[0], &byte, 1);
		break;
	case 1:
		sleep_ms(60000);
		break;
	case 2:
		pause();
		break;
	case 3:
		accept(listener, NULL, NULL);
		break;
	case 4:
		poll(NULL, 0, 60000);
		break;
	case 5:
		waitpid(-1, NULL, 0);
		break;
	}
}

static void *run(void *argument)
{
	wait_in((long)argument);
	broken("the call is ended by the cancellation", __func__, (int)(long)argument);
	return NULL;
}

int main(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	PROMISE(pipe(ends) == 0);
	listener = socket(AF_UNIX, SOCK_STREAM, 0);
	PROMISE(bind(listener, (void *)&address, sizeof address.sun_family) == 0 && listen(listener, 1) == 0);
	pid_t child = fork();
	if (child == 0) {
		for (;;)
			pause();
	}
	for (long which = 0; which < 6; which++) {
		pthread_t thread = start(run, (void *)which);
		sleep_ms(20);
		pthread_cancel(thread);
		PROMISE(join(thread) == PTHREAD_CANCELED);
	}
	kill(child, SIGKILL);
	PROMISE(waitpid(child, NULL, 0) == child);
	return 0;
}
