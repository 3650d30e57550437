/* SPDX-License-Identifier: MIT */
/* Character classes and number formats work in a new thread from its first instruction on. */
#include "promise.h"

#include <ctype.h>

static void *classify(void *argument)
{
	char text[64];
	for (int c = 0; c < 128; c++)
		PROMISE(!!isdigit(c) == (c >= '0' && c <= '9') && tolower('A' + c % 26) == 'a' + c % 26);
	snprintf(text, sizeof text, "%.3f %ld %s", 3.14159, (long)argument, strerror(ENOENT));
	PROMISE(strncmp(text, "3.142 ", 6) == 0 && strtod("2.5", NULL) == 2.5 && strtol("0x1f", NULL, 0) == 31);
	return NULL;
}

int main(void)
{
	pthread_t threads[8];
	for (long i = 0; i < 8; i++)
		threads[i] = start(classify, (void *)i);
	for (int i = 0; i < 8; i++)
		join(threads[i]);
	return 0;
}
