/* SPDX-License-Identifier: MIT */
/* Cleanup handlers run last first, on cancellation, on pthread_exit and on pop(1), and not on pop(0). */
#include "promise.h"

static char order[16];

static void note(void *letter)
{
	size_t length = strlen(order);
	order[length] = *(const char *)letter;
}

static void *popped(void *unused)
{
	pthread_cleanup_push(note, (void *)"a");
	pthread_cleanup_push(note, (void *)"b");
	pthread_cleanup_pop(1);
	pthread_cleanup_pop(0);
	return unused;
}

static void *left(void *unused)
{
	pthread_cleanup_push(note, (void *)"c");
	pthread_cleanup_push(note, (void *)"d");
	pthread_exit(unused);
	pthread_cleanup_pop(0);
	pthread_cleanup_pop(0);
	return unused;
}

static void *cancelled(void *unused)
{
	pthread_cleanup_push(note, (void *)"e");
	pthread_cleanup_push(note, (void *)"f");
	pthread_cancel(pthread_self());
	pthread_testcancel();
	pthread_cleanup_pop(0);
	pthread_cleanup_pop(0);
	return unused;
}

int main(void)
{
	in_thread(popped, NULL);
	in_thread(left, NULL);
	PROMISE(in_thread(cancelled, NULL) == PTHREAD_CANCELED);
	PROMISE(strcmp(order, "bdcfe") == 0);
	return 0;
}
