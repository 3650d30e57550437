/* SPDX-License-Identifier: MIT */
/*
 * Reads environments, one a line, whose entries are separated by tabs; the first line is this process's own LD_PRELOAD.
 * Prints for each what ptw_kept_preload makes of it, in room that is no byte too large. A line "-" is no environment.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kept_preload.h"

enum { MOST = 4096 };

int main(void)
{
	char *line = NULL, *entries[MOST];
	size_t size = 0;
	ssize_t length = getline(&line, &size, stdin);
	if (length <= 0)
		return 1;
	line[length - 1] = 0;
	ptw_kept_preload_init(strcmp(line, "-") ? line : NULL);
	while ((length = getline(&line, &size, stdin)) > 0) {
		size_t count = 0;
		line[length - 1] = 0;
		for (char *entry = strtok(line, "\t"); entry && count < MOST - 1; entry = strtok(NULL, "\t"))
			entries[count++] = entry;
		entries[count] = NULL;
		char *const *environment = count == 1 && !strcmp(entries[0], "-") ? NULL : entries;
		size_t bytes = ptw_kept_preload_room(environment);
		void *room = malloc(bytes ? bytes : 1);
		char *const *kept = bytes ? ptw_kept_preload(environment, room, bytes) : environment;
		printf("%zu", bytes);
		for (; kept && *kept; kept++)
			printf("\t%s", *kept);
		printf("\n");
		if (bytes && ptw_kept_preload(environment, room, bytes - 1) != environment)
			return 2;
		free(room);
	}
	free(line);
	return 0;
}
