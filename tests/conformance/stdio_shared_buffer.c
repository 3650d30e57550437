/* SPDX-License-Identifier: MIT */
/* What one thread leaves in a stdio buffer, another adds to, and exit writes it out once. */
#include "promise.h"

static void *print(void *text)
{
	fputs(text, stdout);
	return NULL;
}

int main(void)
{
	setvbuf(stdout, NULL, _IOFBF, 65536);
	fputs("one ", stdout);
	in_thread(print, (void *)"two ");
	fputs("three ", stdout);
	in_thread(print, (void *)"four\n");
	return 0;
}
