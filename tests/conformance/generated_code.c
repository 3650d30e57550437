/* SPDX-License-Identifier: MIT */
/* Code that one thread generates is run by others: in memory that is written and executed at once, and in memory that
 * becomes executable when it is written. */
#include "promise.h"

typedef int (*function)(void);

static unsigned char *both, *either;
static struct gate gate = GATE;

/* mov $value, %eax; ret */
static void generate(unsigned char *place, int value)
{
	place[0] = 0xb8;
	memcpy(place + 1, &value, sizeof value);
	place[5] = 0xc3;
}

static int call(unsigned char *place)
{
	function code;
	memcpy(&code, &place, sizeof code);
	return code();
}

static void *run(void *unused)
{
	gate_wait(&gate, 1);
	PROMISE(call(both) == 11 && call(either) == 12);
	generate(both + 64, 13);
	gate_open(&gate, 2);
	gate_wait(&gate, 3);
	PROMISE(call(either) == 14);
	return unused;
}

int main(void)
{
	pthread_t thread = start(run, NULL);
	both = mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	PROMISE(both != MAP_FAILED);
	either = (unsigned char *)untouched(1);
	generate(both, 11);
	generate(either, 12);
	PROMISE(mprotect(either, PAGE, PROT_READ | PROT_EXEC) == 0 && call(either) == 12);
	gate_open(&gate, 1);
	gate_wait(&gate, 2);
	PROMISE(call(both + 64) == 13);
	PROMISE(mprotect(either, PAGE, PROT_READ | PROT_WRITE) == 0);
	generate(either, 14);
	PROMISE(mprotect(either, PAGE, PROT_READ | PROT_EXEC) == 0);
	gate_open(&gate, 3);
	join(thread);
	return 0;
}
