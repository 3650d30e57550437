/* SPDX-License-Identifier: MIT */
/* Calls by an instruction of the program: with all signals blocked, in handlers, beside a handler for SIGSYS; forks. */
#include "promise.h"

#include <linux/futex.h>

static volatile sig_atomic_t handled;
static int word;

static long by_instruction(long number, long first, long second, long third, long fourth)
{
	long result;
	register long r10 __asm__("r10") = fourth;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(first), "S"(second), "d"(third), "r"(r10)
			 : "rcx", "r11", "memory");
	return result;
}

static void on_signal(int number)
{
	static char name[6 * 65 + PAGE];
	handled += number == SIGUSR1 && by_instruction(SYS_uname, (long)name, 0, 0, 0) == 0;
}

static void *wait_and_tell(void *unused)
{
	while (__atomic_load_n(&word, __ATOMIC_ACQUIRE) == 0)
		by_instruction(SYS_futex, (long)&word, FUTEX_WAIT_PRIVATE, 0, 0);
	return unused;
}

static void *body(void *unused)
{
	sigset_t all;
	char *fresh = untouched(1);
	sigfillset(&all);
	PROMISE(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
	PROMISE(by_instruction(SYS_getpid, 0, 0, 0, 0) == getpid() && by_instruction(SYS_gettid, 0, 0, 0, 0) == gettid());
	PROMISE(by_instruction(SYS_getcwd, (long)fresh, PAGE, 0, 0) > 0 && fresh[0] == '/');
	PROMISE(by_instruction(SYS_read, -1, (long)fresh, 1, 0) == -EBADF);
	PROMISE(pthread_sigmask(SIG_UNBLOCK, &all, NULL) == 0);
	PROMISE(pthread_kill(pthread_self(), SIGUSR1) == 0 && handled > 0);
	return unused;
}

int main(void)
{
	int status = 0;
	struct sigaction action = {.sa_handler = on_signal}, seen;
	PROMISE(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGSYS, &action, NULL) == 0);
	PROMISE(sigaction(SIGSYS, NULL, &seen) == 0 && seen.sa_handler == on_signal);
	body(NULL);
	in_thread(body, NULL);
	pthread_t thread = start(wait_and_tell, NULL);
	sleep_ms(20);
	__atomic_store_n(&word, 1, __ATOMIC_RELEASE);
	PROMISE(by_instruction(SYS_futex, (long)&word, FUTEX_WAKE_PRIVATE, 1, 0) >= 0);
	join(thread);
	long child = by_instruction(SYS_fork, 0, 0, 0, 0);
	if (child == 0) {
		word = 2;
		by_instruction(SYS_exit_group, body(NULL) == NULL ? 7 : 8, 0, 0, 0);
	}
	PROMISE(waitpid((pid_t)child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7 && word == 1);
	return 0;
}
