/* SPDX-License-Identifier: MIT */
/* Record locks belong to the process: threads do not exclude each other, a forked process does. */
#include "promise.h"

static int fd;

static int try_lock(void)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 10};
	return fcntl(fd, F_SETLK, &lock);
}

static void *lock_too(void *unused)
{
	PROMISE(try_lock() == 0);
	return unused;
}

int main(void)
{
	char name[] = "/tmp/conformance.XXXXXX";
	int status;
	fd = mkstemp(name);
	unlink(name);
	PROMISE(try_lock() == 0);
	in_thread(lock_too, NULL);
	pid_t child = fork();
	if (child == 0)
		_exit(try_lock() == -1 && (errno == EAGAIN || errno == EACCES) ? 0 : 1);
	PROMISE(waitpid(child, &status, 0) == child && status == 0);
	return 0;
}
