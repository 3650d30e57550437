/* SPDX-License-Identifier: MIT */
/* System calls that libtthread makes for the program where threads are processes, each once, by a program with a thread. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <unistd.h>

static void *nothing(void *argument)
{
	return argument;
}

int main(void)
{
	pthread_t thread;
	struct tms spent;
	struct rusage used;
	struct rlimit limit = { 0, 0 };
	sigset_t pending;
	char from[8] = "abc", to[8];
	struct iovec local = { to, 8 }, remote = { from, 8 };

	if (pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL))
		return 1;
	void *memory = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED || mlock(memory, 4096) || msync(memory, 4096, MS_ASYNC) || munlock(memory, 4096))
		return 2;
	if (times(&spent) == (clock_t)-1 || sigpending(&pending) || setuid(getuid()) || close_range(90, 100, 0))
		return 3;
	if (syscall(SYS_sched_yield) || syscall(SYS_getuid) != getuid())
		return 4;
	if (setrlimit(RLIMIT_CORE, &limit) || getrusage(RUSAGE_SELF, &used))
		return 5;
	char *more = mmap(NULL, 77777, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (more == MAP_FAILED || mprotect(more, 77777, PROT_READ | PROT_WRITE))
		return 6;
	more = mremap(more, 77777, 155554, MREMAP_MAYMOVE);
	if (more == MAP_FAILED || munmap(more, 155554))
		return 7;
	return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != 8 || to[0] != 'a';
}
