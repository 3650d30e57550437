/* SPDX-License-Identifier: MIT */
/* Handlers run once, last registered first, whichever thread registered them and whichever exits.
 *
 * Ends: exit 4 */
#include "promise.h"

static char order[8];
static int count;

static void one(void) { order[count++] = '1'; }
static void two(void) { order[count++] = '2'; }
static void three(void) { order[count++] = '3'; }
static void report(void)
{
	PROMISE(strcmp(order, "321") == 0);
	puts(order);
}

static void *add(void *handler)
{
	PROMISE(atexit((void (*)(void))handler) == 0);
	return NULL;
}

static void *leave(void *unused)
{
	exit(4);
	return unused;
}

int main(void)
{
	atexit(report);
	add((void *)one);
	in_thread(add, (void *)two);
	add((void *)three);
	in_thread(leave, NULL);
	return 0;
}
