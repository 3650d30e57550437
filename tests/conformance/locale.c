/* SPDX-License-Identifier: MIT */
/* setlocale holds for all threads, uselocale for one; conversions work in threads. */
#include "promise.h"

#include <ctype.h>
#include <langinfo.h>
#include <locale.h>
#include <wchar.h>

static struct gate gate = GATE;

static void *early(void *unused)
{
	wchar_t wide[8];
	gate_wait(&gate, 1);
	PROMISE(strcmp(setlocale(LC_ALL, NULL), "C.UTF-8") == 0);
	PROMISE(mbstowcs(wide, "\xc3\xa4", 8) == 1 && wide[0] == 0xe4);
	locale_t c = newlocale(LC_ALL_MASK, "C", NULL);
	PROMISE(c && uselocale(c) == LC_GLOBAL_LOCALE && strcmp(nl_langinfo(CODESET), "ANSI_X3.4-1968") == 0);
	PROMISE(isalpha('a') && !isalpha('1') && toupper('x') == 'X');
	gate_open(&gate, 2);
	gate_wait(&gate, 3);
	PROMISE(uselocale(LC_GLOBAL_LOCALE) == c);
	freelocale(c);
	return unused;
}

int main(void)
{
	pthread_t thread = start(early, NULL);
	PROMISE(setlocale(LC_ALL, "C.UTF-8") != NULL);
	gate_open(&gate, 1);
	gate_wait(&gate, 2);
	PROMISE(strcmp(nl_langinfo(CODESET), "UTF-8") == 0);
	gate_open(&gate, 3);
	join(thread);
	return 0;
}
