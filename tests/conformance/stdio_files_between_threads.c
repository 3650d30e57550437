/* SPDX-License-Identifier: MIT */
/* A FILE opened by one thread is read by another and closed by a third; ungetc and positions are kept. */
#include "promise.h"

static FILE *file;

static void *open_it(void *unused)
{
	file = tmpfile();
	PROMISE(file && fputs("0123456789", file) >= 0 && fseek(file, 2, SEEK_SET) == 0);
	return unused;
}

static void *read_it(void *unused)
{
	PROMISE(fgetc(file) == '2' && ungetc('x', file) == 'x');
	return unused;
}

static void *close_it(void *unused)
{
	PROMISE(fclose(file) == 0);
	return unused;
}

int main(void)
{
	in_thread(open_it, NULL);
	in_thread(read_it, NULL);
	PROMISE(fgetc(file) == 'x' && fgetc(file) == '3' && ftell(file) == 4);
	in_thread(close_it, NULL);
	return 0;
}
