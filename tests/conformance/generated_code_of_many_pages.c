/* SPDX-License-Identifier: MIT */
/* Generated code runs on over the ends of its pages, between instructions and in the midst of one, in each thread, and
 * again after a page in its middle was written anew. */
#include "promise.h"

typedef int (*function)(void);

enum { PAGES = 4, SIZE = PAGES * PAGE };

static unsigned char *code;
static struct gate gate = GATE;

/* inc %eax, two bytes long, from `shift` on; before the first a mov of 0 to it, behind the last a ret. */
static int generate(unsigned char *place, int shift)
{
	int count = 0, at = shift + 5;
	memset(place, 0x90, SIZE);
	memset(place + shift, 0, 5);
	place[shift] = 0xb8;
	for (; at + 2 < SIZE; at += 2, count++) {
		place[at] = 0xff;
		place[at + 1] = 0xc0;
	}
	place[at] = 0xc3;
	return count;
}

static int call(void)
{
	function run;
	memcpy(&run, &code, sizeof run);
	return run();
}

static void *run(void *count)
{
	PROMISE(call() == *(int *)count);
	return NULL;
}

static void protect(unsigned char *start, size_t size, int protection)
{
	PROMISE(mprotect(start, size, protection) == 0);
}

static void *call_when_told(void *count)
{
	PROMISE(call() == *(int *)count);
	gate_open(&gate, 1);
	gate_wait(&gate, 2);
	PROMISE(call() == *(int *)count - 1);
	return NULL;
}

int main(void)
{
	int count = 0;
	for (int shift = 0; shift < 2; shift++) {
		code = (unsigned char *)untouched(PAGES);
		count = generate(code, shift);
		protect(code, SIZE, PROT_READ | PROT_EXEC);
		PROMISE(call() == count);
		in_thread(run, &count);
	}
	pthread_t thread = start(call_when_told, &count);
	gate_wait(&gate, 1);
	protect(code + PAGE, PAGE, PROT_READ | PROT_WRITE);
	memset(code + PAGE + 100, 0x90, 2); /* one inc less */
	protect(code + PAGE, PAGE, PROT_READ | PROT_EXEC);
	PROMISE(call() == count - 1);
	gate_open(&gate, 2);
	join(thread);
	return 0;
}
