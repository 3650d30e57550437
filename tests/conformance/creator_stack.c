/* SPDX-License-Identifier: MIT */
/* What a thread writes through a pointer to a local of its creator is there for the creator. */
#include "promise.h"

static void *fill(void *argument)
{
	long *numbers = argument;
	for (int i = 0; i < 1000; i++)
		numbers[i] += i;
	return NULL;
}

int main(void)
{
	long numbers[1000];
	for (int i = 0; i < 1000; i++)
		numbers[i] = 1;
	for (int round = 0; round < 3; round++)
		in_thread(fill, numbers);
	for (int i = 0; i < 1000; i++)
		PROMISE(numbers[i] == 1 + 3 * i);
	return 0;
}
