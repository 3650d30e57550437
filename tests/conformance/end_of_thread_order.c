/* SPDX-License-Identifier: MIT */
/* At the end of a thread its cleanup handlers run first and the destructors of its keys after them. */
#include "promise.h"

static pthread_key_t key;
static char order[8];

static void note(void *letter) { order[strlen(order)] = *(const char *)letter; }

static void *run(void *unused)
{
	pthread_setspecific(key, "k");
	pthread_cleanup_push(note, (void *)"c");
	pthread_exit(unused);
	pthread_cleanup_pop(0);
	return unused;
}

int main(void)
{
	pthread_key_create(&key, note);
	in_thread(run, NULL);
	PROMISE(strcmp(order, "ck") == 0);
	return 0;
}
