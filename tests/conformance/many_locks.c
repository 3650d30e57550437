/* SPDX-License-Identifier: MIT */
/* Twenty thousand locks in one program each exclude. */
#include "promise.h"

enum { COUNT = 20000 };

static pthread_mutex_t *locks;
static int *values;

static void *add(void *unused)
{
	for (int i = 0; i < COUNT; i++) {
		pthread_mutex_lock(&locks[i]);
		values[i]++;
		pthread_mutex_unlock(&locks[i]);
	}
	return unused;
}

int main(void)
{
	locks = calloc(COUNT, sizeof *locks);
	values = calloc(COUNT, sizeof *values);
	pthread_t one = start(add, NULL), two = start(add, NULL);
	join(one);
	join(two);
	for (int i = 0; i < COUNT; i++)
		PROMISE(values[i] == 2);
	return 0;
}
