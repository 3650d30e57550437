/* SPDX-License-Identifier: MIT */
/*
 * Waits in system calls, one after the other, each ended by another thread or process after a tenth of a second. Of each
 * a line: its name, who waited and who ended it (thread ids), and between which times (CLOCK_MONOTONIC, ns) that was done.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What the one who ends a wait says of it; children share it. */
struct deed {
	pid_t who;
	int64_t begin;
	int64_t end;
};

static struct deed *deed;
static int ends[2];
static int number;
static pid_t waiter;
static uint32_t word;
static const char *file;

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static pid_t self(void)
{
	return (pid_t)syscall(SYS_gettid);
}

static void need(int good, const char *what)
{
	if (!good) {
		fprintf(stderr, "%s: %s\n", what, strerror(errno));
		exit(1);
	}
}

/* Works for a while: whoever waits is asleep by then. */
static void work(void)
{
	const int64_t begin = now();

	deed->who = self();
	while (now() - begin < 100000000)
		;
	deed->begin = now();
}

static void said(const char *name)
{
	printf("%s %d %d %lld %lld\n", name, (int)waiter, (int)deed->who, (long long)deed->begin, (long long)deed->end);
}

static void put(void)
{
	work();
	need(write(ends[1], "x", 1) == 1, "write");
	deed->end = now();
}

static void *put_in_thread(void *unused)
{
	put();
	return unused;
}

static void *count_in_thread(void *unused)
{
	const uint64_t one = 1;

	work();
	need(write(number, &one, sizeof(one)) == sizeof(one), "write");
	deed->end = now();
	return unused;
}

static void *signal_in_thread(void *unused)
{
	work();
	need(!kill(getpid(), SIGUSR1), "kill");
	deed->end = now();
	return unused;
}

static void *kill_in_thread(void *child)
{
	work();
	need(!kill(*(pid_t *)child, SIGKILL), "kill");
	deed->end = now();
	return NULL;
}

static void *wake_in_thread(void *unused)
{
	work();
	__atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
	need(syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) >= 0, "futex");
	deed->end = now();
	return unused;
}

static pthread_t thread(void *(*routine)(void *), void *argument)
{
	pthread_t made;

	need(!pthread_create(&made, NULL, routine, argument), "pthread_create");
	return made;
}

static void take(void)
{
	char byte;

	need(read(ends[0], &byte, 1) == 1, "read");
}

static void close_ends(void)
{
	close(ends[0]);
	close(ends[1]);
}

/* Ends are a pipe, or two sockets; one thread reads what another one writes. */
static void from_thread(const char *name)
{
	need(!pipe(ends), "pipe");
	const pthread_t other = thread(put_in_thread, NULL);

	take();
	pthread_join(other, NULL);
	said(name);
	close_ends();
}

static void from_child(const char *name, int sockets)
{
	need(!(sockets ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends)), "pipe");
	const pid_t child = fork();

	if (!child) {
		close(ends[0]);
		put();
		_exit(0);
	}
	close(ends[1]);
	take();
	need(waitpid(child, NULL, 0) == child, "waitpid");
	said(name);
	close(ends[0]);
}

static void ready(const char *name)
{
	struct pollfd one = {.events = POLLIN};
	fd_set set;
	int told;

	need(!pipe(ends), "pipe");
	const pthread_t other = thread(put_in_thread, NULL);

	one.fd = ends[0];
	if (!strcmp(name, "poll")) {
		need(poll(&one, 1, -1) == 1, "poll");
	} else if (!strcmp(name, "select")) {
		FD_ZERO(&set);
		FD_SET(ends[0], &set);
		need(select(ends[0] + 1, &set, NULL, NULL, NULL) == 1, "select");
	} else {
		struct epoll_event event = {.events = EPOLLIN};

		told = epoll_create1(0);
		need(told >= 0 && !epoll_ctl(told, EPOLL_CTL_ADD, ends[0], &event), "epoll_ctl");
		need(epoll_wait(told, &event, 1, -1) == 1, "epoll_wait");
		close(told);
	}
	take();
	pthread_join(other, NULL);
	said(name);
	close_ends();
}

static void counted(const char *name)
{
	struct pollfd one = {.events = POLLIN};
	uint64_t found;

	number = one.fd = eventfd(0, 0);
	need(number >= 0, "eventfd");
	const pthread_t other = thread(count_in_thread, NULL);

	if (!strcmp(name, "eventfd_poll"))
		need(poll(&one, 1, -1) == 1, "poll");
	need(read(number, &found, sizeof(found)) == sizeof(found), "read");
	pthread_join(other, NULL);
	said(name);
	close(number);
}

/* The end of a pipe is read when the last process that has it to write to is gone. */
static void at_the_end(const char *name)
{
	char byte;

	need(!pipe(ends), "pipe");
	const pid_t child = fork();

	if (!child) {
		close(ends[0]);
		work();
		deed->end = now() + 50000000; /* it cannot say when it has ended */
		_exit(0);
	}
	close(ends[1]);
	need(read(ends[0], &byte, 1) == 0, "read");
	need(waitpid(child, NULL, 0) == child, "waitpid");
	said(name);
	close(ends[0]);
}

static void locked(const char *name, int whole)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	const int mine = open(file, O_RDWR | O_CREAT, 0600);

	need(mine >= 0 && !pipe(ends), "open");
	const pid_t child = fork();

	if (!child) {
		const int own = open(file, O_RDWR);

		need(!(whole ? flock(own, LOCK_EX) : fcntl(own, F_SETLK, &lock)), "lock");
		need(write(ends[1], "x", 1) == 1, "write");
		work();
		lock.l_type = F_UNLCK;
		need(!(whole ? flock(own, LOCK_UN) : fcntl(own, F_SETLK, &lock)), "unlock");
		deed->end = now();
		_exit(0);
	}
	take();
	need(!(whole ? flock(mine, LOCK_EX) : fcntl(mine, F_SETLKW, &lock)), "lock");
	need(waitpid(child, NULL, 0) == child, "waitpid");
	said(name);
	close(mine);
	close_ends();
}

static void child_ends(const char *name)
{
	siginfo_t info;
	const pid_t child = fork();

	if (!child) {
		work();
		deed->end = now() + 50000000;
		_exit(3);
	}
	if (!strcmp(name, "waitid"))
		need(!waitid(P_PID, (id_t)child, &info, WEXITED), "waitid");
	else
		need(waitpid(-1, NULL, 0) == child, "waitpid");
	said(name);
}

static void child_is_killed(const char *name)
{
	pid_t child = fork();

	if (!child)
		for (;;)
			pause();
	const pthread_t other = thread(kill_in_thread, &child);

	need(waitpid(child, NULL, 0) == child, "waitpid");
	pthread_join(other, NULL);
	said(name);
}

static void signalled(const char *name)
{
	sigset_t set;
	int found;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	need(!pthread_sigmask(SIG_BLOCK, &set, NULL), "sigmask");
	const pthread_t other = thread(signal_in_thread, NULL);

	need(!sigwait(&set, &found), "sigwait");
	pthread_join(other, NULL);
	said(name);
}

static void futex(const char *name)
{
	const pthread_t other = thread(wake_in_thread, NULL);

	while (!__atomic_load_n(&word, __ATOMIC_SEQ_CST))
		syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
	pthread_join(other, NULL);
	said(name);
}

int main(int argc, char **argv)
{
	deed = mmap(NULL, sizeof(*deed), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	need(argc > 1 && deed != MAP_FAILED, "mmap");
	file = argv[1];
	waiter = self();
	from_thread("pipe_thread");
	from_child("pipe_child", 0);
	from_child("socketpair", 1);
	ready("poll");
	ready("select");
	ready("epoll");
	counted("eventfd");
	counted("eventfd_poll");
	at_the_end("end_of_file");
	locked("flock", 1);
	locked("fcntl", 0);
	child_ends("waitpid");
	child_ends("waitid");
	child_is_killed("killed");
	signalled("sigwait");
	futex("futex");
	return 0;
}
