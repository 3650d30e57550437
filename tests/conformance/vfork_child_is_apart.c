/* SPDX-License-Identifier: MIT */
/* A child of vfork has its parent's memory and nothing else of it: actions, masks, timers and numbers are its own. What
 * one thread made, another may wait for, whether the child called exec or ended without; its parent is the program. */
#include "promise.h"

#include <sys/time.h>

static int handled, ended;
static pid_t child;
static char script[200];

static void handle(int signal)
{
	if (signal == SIGCHLD)
		ended++;
	else
		handled++;
}

static void *change_all(void *unused)
{
	struct sigaction gone = {.sa_handler = SIG_DFL}, before;
	struct itimerval soon = {.it_value.tv_sec = 100}, timer;
	volatile pid_t inner = 0, parent = 0;
	volatile int actions = 0;
	stack_t stack = {.ss_flags = SS_DISABLE};
	sigset_t all, mask;
	sigfillset(&all);
	child = vfork();
	if (child == 0) {
		inner = getpid();
		parent = getppid();
		actions = sigaction(SIGUSR1, NULL, &before) == 0 && before.sa_handler == handle;
		actions += sigaction(SIGUSR1, &gone, NULL) == 0 && sigaction(SIGPIPE, &gone, &before) == 0;
		actions += before.sa_handler == SIG_IGN && sigaction(SIGUSR1, NULL, &before) == 0;
		actions += before.sa_handler == SIG_DFL && signal(SIGTERM, SIG_IGN) == SIG_DFL;
		actions += sigaltstack(&stack, NULL) == 0;
		sigprocmask(SIG_SETMASK, &all, NULL);
		setitimer(ITIMER_REAL, &soon, NULL);
		execl("/bin/sh", "sh", "-c", script, NULL);
		_exit(99);
	}
	PROMISE(child > 0 && inner == child && parent == getpid() && actions == 5);
	PROMISE(sigaction(SIGUSR1, NULL, &before) == 0 && before.sa_handler == handle);
	PROMISE(sigaction(SIGPIPE, NULL, &before) == 0 && before.sa_handler == SIG_IGN);
	PROMISE(sigaction(SIGTERM, NULL, &before) == 0 && before.sa_handler == SIG_DFL);
	PROMISE(pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0 && !sigismember(&mask, SIGUSR1));
	PROMISE(getitimer(ITIMER_REAL, &timer) == 0 && timer.it_value.tv_sec == 0 && timer.it_value.tv_usec == 0);
	int was = handled;
	PROMISE(kill(getpid(), SIGUSR1) == 0);
	for (int i = 0; i < 5000 && __atomic_load_n(&handled, __ATOMIC_SEQ_CST) == was; i++)
		sleep_ms(1);
	PROMISE(__atomic_load_n(&handled, __ATOMIC_SEQ_CST) == was + 1);
	return unused;
}

static void *wait_for_changed(void *unused)
{
	int status;
	PROMISE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
	return unused;
}

static void *make(void *words)
{
	volatile int failed = 0;
	child = vfork();
	if (child == 0) {
		execv(((char **)words)[0], words);
		failed = errno;
		_exit(7);
	}
	PROMISE(child > 0 && failed == (((char **)words)[1] ? 0 : ENOENT));
	return NULL;
}

static void *wait_for_any(void *unused)
{
	int status;
	PROMISE(waitpid(-1, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
	PROMISE(waitpid(-1, &status, 0) == -1 && errno == ECHILD);
	return unused;
}

static void *make_and_wait(void *words)
{
	make(words);
	return wait_for_any(NULL);
}

int main(void)
{
	struct sigaction action = {.sa_handler = handle};
	snprintf(script, sizeof script, /* it ignores SIGTERM */
		 "kill -TERM $$; read a b c parent rest < /proc/$$/stat; [ $parent = %d ] && exit 7; exit 9", getpid());
	char *exec[] = {"/bin/sh", "-c", "exit 7", NULL}, *missing[] = {"/no/such/program", NULL};
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGCHLD, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
	change_all(NULL);
	in_thread(wait_for_changed, NULL);
	in_thread(change_all, NULL);
	wait_for_changed(NULL);
	for (int i = 0; i < 2; i++) {
		in_thread(make, i ? missing : exec);
		wait_for_any(NULL);
		in_thread(make, i ? missing : exec);
		in_thread(wait_for_any, NULL);
		in_thread(make_and_wait, i ? missing : exec);
		make_and_wait(i ? missing : exec);
	}
	PROMISE(ended > 0);
	return 0;
}
