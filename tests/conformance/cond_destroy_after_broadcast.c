/* SPDX-License-Identifier: MIT */
/* A condition may be destroyed, and its memory freed, as soon as all waiters were woken by a broadcast. */
#include "promise.h"

struct meeting {
	pthread_mutex_t mutex;
	pthread_cond_t condition;
	int waiting, woken;
};

static void *attend(void *argument)
{
	struct meeting *meeting = argument;
	pthread_mutex_lock(&meeting->mutex);
	meeting->waiting++;
	while (!meeting->woken)
		pthread_cond_wait(&meeting->condition, &meeting->mutex);
	pthread_mutex_unlock(&meeting->mutex);
	return NULL;
}

int main(void)
{
	for (int round = 0; round < 20; round++) {
		struct meeting *meeting = calloc(1, sizeof *meeting);
		pthread_mutex_init(&meeting->mutex, NULL);
		pthread_cond_init(&meeting->condition, NULL);
		pthread_t threads[3];
		for (int i = 0; i < 3; i++)
			threads[i] = start(attend, meeting);
		for (int there = 0; there < 3;) {
			pthread_mutex_lock(&meeting->mutex);
			there = meeting->waiting;
			pthread_mutex_unlock(&meeting->mutex);
			sleep_ms(there < 3);
		}
		pthread_mutex_lock(&meeting->mutex);
		meeting->woken = 1;
		pthread_cond_broadcast(&meeting->condition);
		pthread_mutex_unlock(&meeting->mutex);
		PROMISE(pthread_cond_destroy(&meeting->condition) == 0);
		memset(&meeting->condition, 0xff, sizeof meeting->condition);
		for (int i = 0; i < 3; i++)
			join(threads[i]);
		free(meeting);
	}
	return 0;
}
