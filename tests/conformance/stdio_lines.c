/* SPDX-License-Identifier: MIT */
/* Lines that several threads write to one FILE come out whole, none twice and none missing. */
#include "promise.h"

enum { COUNT = 4, LINES = 500 };

static FILE *file;

static void *print(void *argument)
{
	for (int i = 0; i < LINES; i++)
		PROMISE(fprintf(file, "%ld %d a line that is not all that short\n", (long)argument, i) > 0);
	return NULL;
}

int main(void)
{
	static unsigned char seen[COUNT][LINES];
	pthread_t threads[COUNT];
	char line[100];
	long thread;
	int number;
	file = tmpfile();
	for (long i = 0; i < COUNT; i++)
		threads[i] = start(print, (void *)i);
	for (int i = 0; i < COUNT; i++)
		join(threads[i]);
	rewind(file);
	while (fgets(line, sizeof line, file)) {
		PROMISE(sscanf(line, "%ld %d", &thread, &number) == 2 && strstr(line, " a line that is not all that short\n"));
		seen[thread][number]++;
	}
	for (int i = 0; i < COUNT; i++)
		for (int k = 0; k < LINES; k++)
			PROMISE(seen[i][k] == 1);
	return 0;
}
