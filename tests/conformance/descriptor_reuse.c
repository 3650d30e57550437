/* SPDX-License-Identifier: MIT */
/* Descriptor numbers are the lowest free ones, whichever thread opens: the library takes none of the program's. */
#include "promise.h"

static void *open_one(void *unused)
{
	(void)unused;
	return (void *)(long)open("/dev/null", O_RDONLY);
}

int main(void)
{
	for (int i = 3; i < 20; i++)
		close(i);
	PROMISE((long)in_thread(open_one, NULL) == 3 && (long)open_one(NULL) == 4);
	PROMISE(close(3) == 0 && (long)in_thread(open_one, NULL) == 3);
	PROMISE((long)in_thread(open_one, NULL) == 5);
	return 0;
}
