/* SPDX-License-Identifier: MIT */
/* A program may close every descriptor it does not know, however it does so, and go on: with new threads, with fork, with
 * mapped files, and with programs it executes. */
#include "promise.h"

#include <sys/resource.h>

static void by_closefrom(void) { closefrom(3); }
static void by_range(void) { PROMISE(close_range(3, ~0u, 0) == 0); }
static void by_call(void) { PROMISE(syscall(SYS_close_range, 3, ~0u, 0) == 0); }

static void by_loop(void)
{
	for (int fd = 3; fd < 4096; fd++)
		close(fd);
}

static void *add(void *sum)
{
	__atomic_fetch_add((int *)sum, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static int with_threads(void)
{
	int sum = 0;
	pthread_t threads[3];
	for (int i = 0; i < 3; i++)
		threads[i] = start(add, &sum);
	for (int i = 0; i < 3; i++)
		join(threads[i]);
	return sum;
}

static int status_of(pid_t child)
{
	int status;
	PROMISE(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* `mapped` is a file's page, its descriptor closed long ago. */
static void goes_on(const char *mapped)
{
	PROMISE(with_threads() == 3 && mapped[0] == 'm');
	pid_t child = fork();
	if (child == 0)
		_exit(with_threads() == 3 && mapped[0] == 'm' ? 5 : 6);
	PROMISE(status_of(child) == 5);
	PROMISE(WEXITSTATUS(system("exit 4")) == 4);
	PROMISE(open("/dev/null", O_RDONLY) == 3);
}

int main(void)
{
	void (*const ways[])(void) = {by_closefrom, by_range, by_call, by_loop};
	char name[] = "/tmp/conformance.XXXXXX";
	int fd = mkstemp(name);
	PROMISE(fd >= 0 && unlink(name) == 0 && write(fd, "m", 1) == 1);
	const char *mapped = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	PROMISE(mapped != MAP_FAILED);
	PROMISE(with_threads() == 3);
	for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
		ways[i]();
		goes_on(mapped);
	}
	return 0;
}
