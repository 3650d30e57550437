/* SPDX-License-Identifier: MIT */
/* Globals of the executable are one for all threads: initialised, zero, static in a function, and large. */
#include "promise.h"

static int initialised = 3, zero, large[100000];
const char *name = "before";

static int *in_function(void)
{
	static int local = 8;
	return &local;
}

static void *change(void *unused)
{
	PROMISE(initialised == 3 && zero == 0 && large[77777] == 5 && *in_function() == 9);
	initialised = 4, zero = 1, large[99999] = 6, *in_function() = 10, name = "after";
	return unused;
}

int main(void)
{
	large[77777] = 5;
	*in_function() = 9;
	in_thread(change, NULL);
	PROMISE(initialised == 4 && zero == 1 && large[99999] == 6 && *in_function() == 10);
	PROMISE(strcmp(name, "after") == 0);
	return 0;
}
