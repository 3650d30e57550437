/* SPDX-License-Identifier: MIT */
/*
 * A planted race: two threads change one variable without a lock, each by a function of its own, and say how often, who
 * they are and where their function is. Its neighbours change as often.
 *
 *   watched race N      both threads N times
 *   watched steps       one thread; the values are known
 *   watched blocked     five writes while the kernel was told to block SIGTRAP, in libtthread's despite
 *   watched masked      five writes in a thread that blocks all signals as programs do
 *   watched trap        SIGTRAP that is the program's own: raised, by int3, and by default
 *   watched reasonless  the variable changes unseen, and a SIGTRAP comes as the kernel sends it when the processor gave no
 *                       reason: before and after a write that is seen; then `watched reasonless own`: one that is not so
 *   watched fork        the child writes twice, then the parent once; then the child of another fork executes a program
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))

struct inner {
	short pad;
	unsigned flag : 3;
	long counter;
	char name[6];
};

struct outer {
	long before;
	struct inner part[3];
	union {
		int number;
		float real;
	};
	double table[2][4];
};

volatile struct outer shared;
volatile long neighbour;
volatile char odd[16] __attribute__((aligned(8)));
__thread volatile int own;
static volatile int hidden;
static int times;

APART static void left(void)
{
	for (int i = 0; i < times; i++) {
		shared.part[1].counter = shared.part[1].counter + 1;
		shared.part[0].counter++;
		neighbour++;
	}
}

APART static void right(void)
{
	for (int i = 0; i < times; i++) {
		shared.part[1].counter = 1000000 + i;
		shared.part[2].counter++;
	}
}

APART static void say(const char *name)
{
	printf("%s %ld\n", name, (long)syscall(SYS_gettid));
}

static void *run_left(void *unused)
{
	say("left");
	left();
	return unused;
}

static void *run_right(void *unused)
{
	say("right");
	right();
	return unused;
}

static void race(void)
{
	pthread_t one, two;
	pthread_create(&one, NULL, run_left, NULL);
	pthread_create(&two, NULL, run_right, NULL);
	pthread_join(one, NULL);
	pthread_join(two, NULL);
}

static void steps(void)
{
	long seen = 0;
	for (int i = 1; i <= 5; i++)
		shared.part[1].counter = i * i;
	shared.part[1].counter = 25; /* no change */
	for (int i = 0; i < 3; i++)
		seen += shared.part[1].counter;
	shared.number = 7;
	odd[3] = 'x';
	for (int i = 0; i < 6; i++)
		odd[5 + i] = (char)('a' + i);
	hidden = 3;
	printf("%ld\n", seen);
}

static void write_five(void)
{
	for (int i = 1; i <= 5; i++)
		shared.part[1].counter = i;
}

static void blocked(void)
{
	unsigned long all = ~0ul, before;
	syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, &before, sizeof all);
	write_five();
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
	shared.part[1].counter = 6;
}

static void *run_masked(void *unused)
{
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	write_five();
	return unused;
}

static volatile int traps;

static void on_trap(int signal, siginfo_t *info, void *context)
{
	(void)context;
	traps += signal == SIGTRAP && info != NULL;
	shared.part[1].counter++; /* while SIGTRAP would be blocked natively */
}

static void trap(void)
{
	struct sigaction action, old;
	memset(&action, 0, sizeof action);
	action.sa_sigaction = on_trap;
	action.sa_flags = SA_SIGINFO;
	sigaction(SIGTRAP, NULL, &old);
	printf("%d ", old.sa_handler == SIG_DFL);
	sigaction(SIGTRAP, &action, NULL);
	raise(SIGTRAP);
	__asm__ volatile("int3");
	sigaction(SIGTRAP, NULL, &old);
	printf("%d %d\n", old.sa_sigaction == on_trap, traps);
	fflush(stdout);
	signal(SIGTRAP, SIG_DFL);
	raise(SIGTRAP);
}

static volatile long place; /* where a thread is when it gets a signal that it sends itself */

static void on_first_trap(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info;
	place = (long)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
}

/* Send it, saying that it is about `address`. */
APART static void send_trap(long address)
{
	siginfo_t info;
	long result, pid = getpid(), tid = syscall(SYS_gettid);
	memset(&info, 0, sizeof info);
	info.si_signo = SIGTRAP;
	info.si_code = TRAP_BRKPT;
	info.si_addr = (void *)address;
	__asm__ volatile("movq %[info], %%r10\n	syscall"
			 : "=a"(result)
			 : "a"((long)SYS_rt_tgsigqueueinfo), "D"(pid), "S"(tid), "d"((long)SIGTRAP), [info] "r"(&info)
			 : "rcx", "r10", "r11", "memory");
	if (result != 0)
		printf("cannot be sent: %ld\n", result);
}

/* The kernel writes it: no watchpoint sees that. */
static void change_unseen(long value)
{
	struct iovec from = {&value, sizeof value}, to = {(void *)&shared.part[1].counter, sizeof value};
	process_vm_writev(getpid(), &from, 1, &to, 1, 0);
}

APART static void reasonless(const char *how)
{
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_sigaction = on_first_trap;
	action.sa_flags = SA_SIGINFO;
	sigaction(SIGTRAP, &action, NULL);
	send_trap(8); /* the program's own, and so is the last */
	signal(SIGTRAP, SIG_DFL);
	change_unseen(5);
	send_trap(place);
	shared.part[1].counter = 6;
	send_trap(place); /* nothing has changed */
	printf("goes on\n");
	fflush(stdout);
	if (how && !strcmp(how, "own"))
		send_trap(place + 1);
}

static void forks(const char *self)
{
	fflush(stdout);
	if (fork() == 0) {
		shared.part[1].counter = 1;
		shared.part[1].counter = 2;
		_exit(0);
	}
	wait(NULL);
	shared.part[1].counter = 10;
	if (fork() == 0) {
		execl(self, self, "steps", NULL);
		_exit(1);
	}
	wait(NULL);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	times = argc > 2 ? atoi(argv[2]) : 0;
	if (!strcmp(what, "race")) {
		race();
	} else if (!strcmp(what, "steps")) {
		steps();
	} else if (!strcmp(what, "blocked")) {
		blocked();
	} else if (!strcmp(what, "masked")) {
		pthread_t thread;
		pthread_create(&thread, NULL, run_masked, NULL);
		pthread_join(thread, NULL);
	} else if (!strcmp(what, "trap")) {
		trap();
	} else if (!strcmp(what, "reasonless")) {
		reasonless(argc > 2 ? argv[2] : NULL);
	} else if (!strcmp(what, "fork")) {
		forks(argv[0]);
	}
	printf("%ld %d\n", shared.before + shared.part[1].name[0] + (long)shared.table[1][3], own);
	return 0;
}
