/* SPDX-License-Identifier: MIT */
/* A signal for the process that only one thread takes ends that thread's read when the handler does not restart calls,
 * and not when it does. */
#include "promise.h"

static int ends[2];
static volatile int runs;
static struct gate gate = GATE;

static void handler(int number, siginfo_t *info, void *context)
{
	(void)context;
	PROMISE(number == SIGUSR1 && info->si_code == SI_USER && info->si_pid == getpid() && info->si_uid == getuid());
	runs++;
}

static void *read_it(void *unused)
{
	sigset_t set;
	char byte;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	gate_open(&gate, 1);
	PROMISE(read(ends[0], &byte, 1) == -1 && errno == EINTR && runs == 1);
	gate_open(&gate, 2);
	PROMISE(read(ends[0], &byte, 1) == 1 && byte == 'x' && runs == 2);
	return unused;
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	sigset_t set;
	PROMISE(pipe(ends) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	pthread_t thread = start(read_it, NULL);
	gate_wait(&gate, 1);
	sleep_ms(30);
	PROMISE(kill(getpid(), SIGUSR1) == 0);
	gate_wait(&gate, 2);
	action.sa_flags |= SA_RESTART;
	sigaction(SIGUSR1, &action, NULL);
	sleep_ms(30);
	PROMISE(kill(getpid(), SIGUSR1) == 0);
	for (int i = 0; i < 5000 && runs < 2; i++)
		sleep_ms(1);
	sleep_ms(30);
	PROMISE(write(ends[1], "x", 1) == 1);
	join(thread);
	return 0;
}
