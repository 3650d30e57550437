/* SPDX-License-Identifier: MIT */
/* A thread's thread-local variables begin with their initialisers, not with what the creator made of them. */
#include "promise.h"

static __thread int number = 41;
static __thread char text[8] = "fresh";
static __thread long zero;

static void *look(void *unused)
{
	PROMISE(number == 41 && strcmp(text, "fresh") == 0 && zero == 0);
	number = 7;
	return unused;
}

int main(void)
{
	number = 1, zero = 1;
	strcpy(text, "changed");
	in_thread(look, NULL);
	in_thread(look, NULL);
	PROMISE(number == 1 && zero == 1 && strcmp(text, "changed") == 0);
	return 0;
}
