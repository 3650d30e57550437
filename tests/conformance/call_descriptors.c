/* SPDX-License-Identifier: MIT */
/* pipe, socketpair, eventfd, inotify and wait give their results into fresh pages. */
#include "fresh.h"

#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/socket.h>

static void body(char *memory)
{
	int *ends = (int *)memory, *status = (int *)(memory + 4200);
	PROMISE(pipe(ends) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
	PROMISE(pipe2(ends + 2, O_CLOEXEC) == 0 && close(ends[2]) == 0 && close(ends[3]) == 0);
	PROMISE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
	int fd = eventfd(3, 0);
	uint64_t *value = (uint64_t *)(memory + 5000);
	PROMISE(eventfd_read(fd, value) == 0 && *value == 3 && eventfd_write(fd, 2) == 0 && close(fd) == 0);
	fd = inotify_init1(IN_NONBLOCK);
	strcpy(memory + 6000, "/tmp");
	PROMISE(inotify_add_watch(fd, memory + 6000, IN_CREATE) >= 0);
	char name[] = "/tmp/conformance.XXXXXX";
	close(mkstemp(name));
	PROMISE(unlink(name) == 0 && read(fd, memory + 6500, 1000) > 0 && close(fd) == 0);
	pid_t child = fork();
	if (child == 0)
		_exit(21);
	siginfo_t *info = (siginfo_t *)(memory + 1000);
	PROMISE(waitid(P_PID, (id_t)child, info, WEXITED | WNOWAIT) == 0 && info->si_status == 21);
	PROMISE(waitpid(child, status, 0) == child && WEXITSTATUS(*status) == 21);
}

int main(void)
{
	with_fresh_memory(body);
	return 0;
}
