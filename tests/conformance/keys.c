/* SPDX-License-Identifier: MIT */
/* A deleted key is EINVAL, calls no destructor, and a key that takes its place begins with NULL in every
 * thread; too many keys are EAGAIN. */
#include "promise.h"

#include <limits.h>

static pthread_key_t key;
static struct gate gate = GATE;

static void never(void *value)
{
	(void)value;
	broken("no destructor of a deleted key", __func__, __LINE__);
}

static void *hold(void *unused)
{
	pthread_setspecific(key, &key);
	gate_open(&gate, 1);
	gate_wait(&gate, 2);
	PROMISE(pthread_getspecific(key) == NULL);
	return unused;
}

int main(void)
{
	pthread_key_t keys[PTHREAD_KEYS_MAX + 1];
	PROMISE(pthread_key_create(&key, never) == 0);
	pthread_t thread = start(hold, NULL);
	gate_wait(&gate, 1);
	PROMISE(pthread_key_delete(key) == 0 && pthread_key_delete(key) == EINVAL);
	PROMISE(pthread_setspecific(key, &key) == EINVAL);
	int made = 0, result;
	while (made <= PTHREAD_KEYS_MAX && (result = pthread_key_create(&keys[made], NULL)) == 0)
		PROMISE(pthread_getspecific(keys[made]) == NULL), made++;
	PROMISE(result == EAGAIN && made > 900);
	key = keys[0];
	gate_open(&gate, 2);
	join(thread);
	return 0;
}
