/* SPDX-License-Identifier: MIT */
/* sigaction, sigprocmask, sigpending, sigaltstack and sigtimedwait take and fill structures in fresh pages. */
#include "fresh.h"

static void handler(int number) { (void)number; }

static void body(char *memory)
{
	struct sigaction *action = (struct sigaction *)memory, *old = (struct sigaction *)(memory + 4200);
	memset(action, 0, sizeof *action);
	action->sa_handler = handler;
	PROMISE(sigaction(SIGUSR1, action, NULL) == 0 && sigaction(SIGUSR1, NULL, old) == 0);
	PROMISE(old->sa_handler == handler);
	sigset_t *set = (sigset_t *)(memory + 5000), *before = (sigset_t *)(memory + 5500);
	sigemptyset(set);
	sigaddset(set, SIGUSR2);
	PROMISE(pthread_sigmask(SIG_BLOCK, set, before) == 0 && sigpending(set) == 0);
	PROMISE(sigprocmask(SIG_SETMASK, before, set) == 0 && sigismember(set, SIGUSR2));
	PROMISE(sigaltstack(NULL, (stack_t *)(memory + 6000)) == 0);
	struct timespec *none = (struct timespec *)(memory + 7000);
	*none = (struct timespec){0, 0};
	PROMISE(sigtimedwait(set, (siginfo_t *)(memory + 7200), none) == -1 && errno == EAGAIN);
}

int main(void)
{
	with_fresh_memory(body);
	return 0;
}
