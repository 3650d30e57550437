/* SPDX-License-Identifier: MIT */
/* fread, fgets, getline, fscanf and fwrite of large pieces go straight between fresh pages and files. */
#include "fresh.h"

static char name[] = "/tmp/conformance.XXXXXX";

static void body(char *memory)
{
	FILE *file = fopen(name, "r+");
	memset(memory, 'm', FRESH_ROOM);
	PROMISE(file && fwrite(memory, 1, FRESH_ROOM, file) == FRESH_ROOM && fflush(file) == 0);
	rewind(file);
	memset(memory, 0, 10);
	PROMISE(fread(memory, 1, FRESH_ROOM, file) == FRESH_ROOM && memory[0] == 'm' && memory[FRESH_ROOM - 1] == 'm');
	rewind(file);
	fputs("12 abc\nline\n", file);
	rewind(file);
	int *number = (int *)(memory + 4000);
	PROMISE(fscanf(file, "%d %99s", number, memory) == 2 && *number == 12 && strcmp(memory, "abc") == 0);
	PROMISE(fgets(memory + 5000, 100, file) && fgets(memory + 5000, 100, file));
	PROMISE(strcmp(memory + 5000, "line\n") == 0);
	char *line = NULL;
	size_t room = 0;
	rewind(file);
	PROMISE(getline(&line, &room, file) == 7);
	free(line);
	PROMISE(fclose(file) == 0);
}

int main(void)
{
	close(mkstemp(name));
	with_fresh_memory(body);
	unlink(name);
	return 0;
}
