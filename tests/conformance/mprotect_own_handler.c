/* SPDX-License-Identifier: MIT */
/* A program that tells writes by faults of its own: what one thread protects, another faults on at once, also without
 * synchronisation; the handler sees the address, gives the access back and the write goes on. */
#include "promise.h"

enum { PAGES = 16 };

static char *memory;
static volatile int faults, spinning, stop;
static char *volatile last;

static void handler(int number, siginfo_t *info, void *context)
{
	(void)number, (void)context;
	last = (char *)info->si_addr;
	char *page = (char *)((uintptr_t)last & ~(uintptr_t)(PAGE - 1));
	if (page < memory || page >= memory + PAGES * PAGE || mprotect(page, PAGE, PROT_READ | PROT_WRITE) != 0)
		_exit(9);
	__atomic_fetch_add(&faults, 1, __ATOMIC_SEQ_CST);
}

static void *spin(void *unused)
{
	volatile char *place = memory + 3 * PAGE;
	*place = 1;
	while (!stop) {
		(*place)++;
		spinning = 1;
	}
	return unused;
}

static void *write_all(void *unused)
{
	for (int i = 0; i < PAGES; i++)
		memory[i * PAGE + 7] = (char)(i + 1);
	return unused;
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	memory = untouched(PAGES);
	PROMISE(sigaction(SIGSEGV, &action, NULL) == 0);
	pthread_t thread = start(spin, NULL);
	while (!spinning)
		sleep_ms(1);
	PROMISE(mprotect(memory, PAGES * PAGE, PROT_READ) == 0);
	for (int i = 0; i < 5000 && !faults; i++)
		sleep_ms(1);
	PROMISE(faults == 1 && last == memory + 3 * PAGE);
	stop = 1;
	join(thread);
	in_thread(write_all, NULL);
	PROMISE(faults == PAGES && last == memory + (PAGES - 1) * PAGE + 7);
	PROMISE(mprotect(memory, PAGES * PAGE, PROT_READ) == 0);
	memory[9] = 1;
	PROMISE(faults == PAGES + 1 && last == memory + 9);
	PROMISE(mprotect(memory + 1, PAGE, PROT_READ) == -1 && errno == EINVAL);
	for (int i = 0; i < PAGES; i++)
		PROMISE(memory[i * PAGE + 7] == i + 1);
	return 0;
}
