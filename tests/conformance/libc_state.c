/* SPDX-License-Identifier: MIT */
/* strtok's and gmtime's static state is one for all threads, as globals are. */
#include "promise.h"

static char text[] = "a,b,c";
static struct tm *time_of_main;

static void *go_on(void *unused)
{
	PROMISE(strcmp(strtok(NULL, ","), "b") == 0);
	time_t then = 86400;
	PROMISE(gmtime(&then) == time_of_main);
	return unused;
}

int main(void)
{
	time_t zero = 0;
	PROMISE(strcmp(strtok(text, ","), "a") == 0);
	time_of_main = gmtime(&zero);
	PROMISE(time_of_main->tm_mday == 1);
	in_thread(go_on, NULL);
	PROMISE(time_of_main->tm_mday == 2 && strcmp(strtok(NULL, ","), "c") == 0);
	return 0;
}
