/* SPDX-License-Identifier: MIT */
/* A library's or program's constructor may create and join threads; a destructor too. */
#include "promise.h"

static int made;

static void *add(void *unused)
{
	made++;
	return unused;
}

__attribute__((constructor)) static void before_main(void)
{
	in_thread(add, NULL);
	in_thread(add, NULL);
}

__attribute__((destructor)) static void after_main(void)
{
	in_thread(add, NULL);
	PROMISE(made == 4);
}

int main(void)
{
	in_thread(add, NULL);
	PROMISE(made == 3);
	return 0;
}
