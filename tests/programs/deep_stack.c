/* SPDX-License-Identifier: MIT */
/* deep_stack CALLS: calls itself so often, with 100 kB of stack each time; ends with 3. */
#include <stdlib.h>

enum { ROOM = 100000 };

static int call(int left)
{
	volatile char room[ROOM];

	room[0] = room[ROOM - 1] = 0;
	return left ? call(left - 1) + room[0] : 3;
}

int main(int argc, char **argv)
{
	return argc > 1 ? call(atoi(argv[1])) : 1;
}
