/* SPDX-License-Identifier: MIT */
/* Calls that threads as processes cannot carry, each made twice at one place by a function that is named after it. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char stack[64 << 10] __attribute__((aligned(16)));
static int shared_word;

static int end(void *unused)
{
	(void)unused;
	syscall(SYS_exit, 0);
	return 0;
}

static __attribute__((noinline)) void clones_a_thread(void)
{
	int pid = clone(end, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
	waitpid(pid, NULL, 0);
}

static __attribute__((noinline)) void asks_to_be_traced(void) { syscall(SYS_ptrace, PTRACE_PEEKDATA, 0, NULL, NULL); }

static __attribute__((noinline)) void sets_up_a_ring(void) { syscall(SYS_io_uring_setup, 0, NULL); }

static __attribute__((noinline)) void takes_faults(void) { syscall(SYS_userfaultfd, -1); }

static __attribute__((noinline)) void waits_alone(void)
{
	long page = syscall(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	syscall(SYS_futex, page, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	syscall(SYS_munmap, page, 4096);
}

static void *wait_for_end(void *barrier)
{
	pthread_barrier_wait(barrier);
	return NULL;
}

static __attribute__((noinline)) char *maps_there(int file, char *place, size_t size)
{
	char *got = mmap(place, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
	return got == place ? got : NULL;
}

/* Another thread lives meanwhile. */
static void shares_elsewhere(void)
{
	enum { SIZE = 65536 };
	pthread_barrier_t end;
	pthread_t other;
	int file = (int)syscall(SYS_memfd_create, "shared", 0);
	pthread_barrier_init(&end, NULL, 2);
	pthread_create(&other, NULL, wait_for_end, &end);
	char *place = ftruncate(file, SIZE) == 0 ? maps_there(file, (char *)0x740000000, SIZE) : NULL;
	if (!place)
		abort();
	place[1] = 1;
	pthread_barrier_wait(&end);
	pthread_join(other, NULL);
	munmap(place, SIZE);
	close(file);
}

/* These are carried: nothing is to be told. */
static __attribute__((noinline)) void wakes_all(void)
{
	int local = 0;
	syscall(SYS_futex, &shared_word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	syscall(SYS_futex, &local, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	void *block = calloc(1, 64);
	syscall(SYS_futex, block, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	free(block);
}

static __attribute__((noinline)) void forks_by_number(void)
{
	static volatile int seen;
	long pid = syscall(SYS_fork);
	if (pid == 0) {
		seen = 1;
		_exit(seen);
	}
	int status = 0;
	if (waitpid((pid_t)pid, &status, 0) != pid || WEXITSTATUS(status) != 1 || seen != 0)
		abort();
}

static void *idle(void *unused) { return unused; }

static const struct {
	const char *name;
	void (*function)(void);
} calls[] = {
	{"clone", clones_a_thread}, {"ptrace", asks_to_be_traced}, {"io_uring", sets_up_a_ring},
	{"userfaultfd", takes_faults}, {"futex", waits_alone}, {"there", shares_elsewhere}, {"shared", wakes_all},
	{"fork", forks_by_number},
};

int main(int count, char **words)
{
	pthread_t thread;
	pthread_create(&thread, NULL, idle, NULL);
	pthread_join(thread, NULL);
	for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++)
		for (int again = 0; count > 1 && again < 2; again++)
			if (strcmp(words[1], calls[i].name) == 0)
				calls[i].function();
	puts("done");
	return 0;
}
