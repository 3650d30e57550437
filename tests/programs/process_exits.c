/* SPDX-License-Identifier: MIT */
/* A program of five threads that ends as its argument says. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *way;

static void at_exit(void) { printf("exit handler\n"); }

static void *wait_for_ever(void *argument)
{
	for (;;)
		pause();
	return argument;
}

static void *end_it(void *argument)
{
	if (!strcmp(way, "exit"))
		exit(7);
	if (!strcmp(way, "_exit"))
		_exit(9);
	if (!strcmp(way, "abort"))
		abort();
	if (!strcmp(way, "kill"))
		raise(SIGKILL);
	if (!strcmp(way, "fault"))
		*(volatile int *)8 = 1;
	if (!strcmp(way, "last")) {
		usleep(100000);
		printf("the last thread ends\n");
	}
	return argument;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	(void)argc;
	way = argv[1];
	atexit(at_exit);
	for (int i = 0; i < 3 && strcmp(way, "last") != 0; i++)
		pthread_create(&thread, NULL, wait_for_ever, NULL);
	pthread_create(&thread, NULL, end_it, NULL);
	if (!strcmp(way, "main"))
		return 5;
	if (!strcmp(way, "last"))
		pthread_exit(NULL);
	wait_for_ever(NULL);
}
