// SPDX-License-Identifier: MIT
// Says from a second thread what the kernel has of the process, under a lock that both threads take.
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
int told;

static void *tell(void *path)
{
	char line[4096];
	FILE *status = fopen(path, "r");

	pthread_mutex_lock(&mutex);
	while (status && fgets(line, sizeof(line), status)) {
		fputs(line, stdout);
		told++;
	}
	pthread_mutex_unlock(&mutex);
	if (status)
		fclose(status);
	return NULL;
}

int main(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, tell, "/proc/thread-self/status"))
		return 1;
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	pthread_join(thread, NULL);
	return !told;
}
