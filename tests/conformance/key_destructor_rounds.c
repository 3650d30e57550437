/* SPDX-License-Identifier: MIT */
/* Values that destructors set anew are destroyed again, in up to four rounds. */
#include "promise.h"

static pthread_key_t key, other;
static int rounds, others;

static void again(void *value)
{
	rounds++;
	pthread_setspecific(key, value);
}

static void once(void *value)
{
	(void)value;
	if (others++ == 0)
		pthread_setspecific(key, &rounds);
}

static void *set(void *value)
{
	pthread_setspecific(key, value);
	return NULL;
}

static void *set_other(void *value)
{
	pthread_setspecific(other, value);
	return NULL;
}

int main(void)
{
	pthread_key_create(&key, again);
	pthread_key_create(&other, once);
	in_thread(set, &rounds);
	PROMISE(rounds == 4);
	rounds = 0;
	in_thread(set_other, &others);
	PROMISE(others == 1 && rounds >= 3);
	return 0;
}
