/* SPDX-License-Identifier: MIT */
/* Threads that make locales and look up translations at the same time: the C library's own read-write locks, which no
   call of the program's names. Prints "ok". */
#define _GNU_SOURCE
#include <libintl.h>
#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { THREADS = 4, ROUNDS = 2000 };

static void *make(void *wrong)
{
	struct tm april = {.tm_mon = 3};
	char name[32];
	for (int i = 0; i < ROUNDS; i++) {
		locale_t locale = newlocale(LC_ALL_MASK, i % 2 ? "C.UTF-8" : "C", NULL);
		if (!locale || strftime_l(name, sizeof name, "%B", &april, locale) == 0 || strcmp(name, "April") != 0)
			*(int *)wrong = 1;
		if (locale)
			freelocale(locale);
		textdomain("nobody");
		if (strcmp(gettext("hello"), "hello") != 0)
			*(int *)wrong = 1;
	}
	return NULL;
}

int main(void)
{
	pthread_t thread[THREADS];
	int wrong[THREADS] = {0}, all = 0;
	setlocale(LC_ALL, "C.UTF-8");
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&thread[i], NULL, make, &wrong[i]) != 0)
			return 2;
	for (int i = 0; i < THREADS; i++) {
		pthread_join(thread[i], NULL);
		all |= wrong[i];
	}
	puts(all ? "wrong" : "ok");
	return 0;
}
