/* SPDX-License-Identifier: MIT */
/* `many_tags COUNT LENGTH`: two threads tag COUNT times each, with text of LENGTH letters and their index as data. */
#include <ptweave/tag.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int count;
static char text[2][4096];

static void *run(void *mine)
{
	for (int i = 0; i < count; i++) {
		char value[16];
		snprintf(value, sizeof value, "%d", i);
		ptweave_tag_with(mine, "index", value);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread[2];
	unsigned long length = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
	if (length == 0 || length >= sizeof *text)
		return 2;
	count = atoi(argv[1]);
	for (int i = 0; i < 2; i++) {
		memset(text[i], 'a' + i, length);
		if (pthread_create(&thread[i], NULL, run, text[i]) != 0)
			return 1;
	}
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	return 0;
}
