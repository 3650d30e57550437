/* SPDX-License-Identifier: MIT */
/* pthread_tryjoin_np is EBUSY while the thread runs and gives its value after. */
#include "promise.h"

static struct gate gate = GATE;

static void *run(void *argument)
{
	gate_wait(&gate, 1);
	return argument;
}

int main(void)
{
	void *value = NULL;
	int result;
	pthread_t thread = start(run, (void *)3);
	PROMISE(pthread_tryjoin_np(thread, &value) == EBUSY && value == NULL);
	gate_open(&gate, 1);
	while ((result = pthread_tryjoin_np(thread, &value)) == EBUSY)
		sleep_ms(1);
	PROMISE(result == 0 && value == (void *)3);
	return 0;
}
