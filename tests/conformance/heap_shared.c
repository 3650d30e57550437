/* SPDX-License-Identifier: MIT */
/* What one thread allocates and writes, others read, write, enlarge and free. */
#include "promise.h"

struct list {
	struct list *next;
	char text[200];
};

static struct list *head;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *push(void *argument)
{
	for (int i = 0; i < 500; i++) {
		struct list *one = malloc(sizeof *one);
		snprintf(one->text, sizeof one->text, "%ld:%d", (long)argument, i);
		pthread_mutex_lock(&mutex);
		one->next = head;
		head = one;
		pthread_mutex_unlock(&mutex);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[4];
	long count = 0, sum = 0;
	for (long i = 0; i < 4; i++)
		threads[i] = start(push, (void *)i);
	for (int i = 0; i < 4; i++)
		join(threads[i]);
	for (struct list *one = head, *next; one; one = next) {
		next = one->next;
		sum += atol(one->text) * 1000 + atol(strchr(one->text, ':') + 1);
		count++;
		free(one);
	}
	PROMISE(count == 2000 && sum == 500 * 6000 + 4 * 124750);
	return 0;
}
