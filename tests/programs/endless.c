/* SPDX-License-Identifier: MIT */
/* Loops of every kind of jump, by number: an alarm ends them, or (the last two) what another thread writes. With a
   second argument the alarm is blocked. */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static volatile int written;

static void handler(int number)
{
	(void)number;
	_exit(write(1, "alarm\n", 6) == 6 ? 0 : 1);
}

static void *writer(void *arg)
{
	(void)arg;
	usleep(100000);
	written = 1;
	return NULL;
}

static void loop(int kind)
{
	switch (kind) {
	case 0: /* to itself */
		__asm__ volatile("1: jmp 1b");
		break;
	case 1: /* indirect */
		__asm__ volatile("lea 1f(%%rip), %%rax\n1: jmp *%%rax" ::: "rax");
		break;
	case 2: /* ahead, over what never runs, and back */
		__asm__ volatile("1: jmp 2f\n.fill 100, 1, 0x90\n2: nop\njmp 3f\nnop\n3: jmp 1b");
		break;
	case 3: /* conditional, always taken */
		__asm__ volatile("xor %%eax, %%eax\n1: jz 1b" ::: "rax");
		break;
	case 4: /* conditional, never taken */
		__asm__ volatile("xor %%eax, %%eax\n1: jnz 2f\nnop\n2: jmp 1b" ::: "rax");
		break;
	case 5: /* a call that never returns */
		__asm__ volatile("1: call 2f\n2: pop %%rax\njmp 1b" ::: "rax", "memory");
		break;
	case 6: /* calls that return */
		__asm__ volatile("sub $128, %%rsp\n1: call 2f\njmp 1b\n2: ret" ::: "memory");
		break;
	case 7: /* a branch over nothing in the midst of a block */
		__asm__ volatile("1: jz 2f\n2: nop\njmp 1b");
		break;
	case 8:
		while (!written)
			;
		break;
	case 9:
		while (!written)
			__builtin_ia32_pause();
		break;
	}
}

int main(int argc, char **argv)
{
	int kind = argc > 1 ? atoi(argv[1]) : 0;
	pthread_t thread;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	if (argc > 2)
		sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGALRM, handler);
	if (kind >= 8) {
		if (pthread_create(&thread, NULL, writer, NULL))
			return 1;
	} else {
		ualarm(200000, 0);
	}
	loop(kind);
	return kind >= 8 && pthread_join(thread, NULL) == 0 && write(1, "written\n", 8) == 8 ? 0 : 1;
}
