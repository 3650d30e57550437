/* SPDX-License-Identifier: MIT */
/*
 * Names from standard input, one a line; for each: NAME quick|asked same|different. Quick: dlsym was not asked. Same:
 * dlsym says the same. Arguments: `audit`: as if there were an auditor; `blind`: the other objects are left out, which
 * is wrong where one of them defines a name.
 */
#define _GNU_SOURCE
#include "next.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *__real_dlsym(void *handle, const char *name);
void *__wrap_dlsym(void *handle, const char *name);

static unsigned asked;

void *__wrap_dlsym(void *handle, const char *name)
{
	asked++;
	return __real_dlsym(handle, name);
}

int main(int argc, char **argv)
{
	static struct ptw_next next;
	char name[1024];

	if (argc > 1 && !strcmp(argv[1], "audit"))
		setenv("LD_AUDIT", "somebody", 1);
	ptw_next_init(&next);
	if (argc > 1 && !strcmp(argv[1], "blind"))
		next.other_count = 0;
	while (fgets(name, sizeof name, stdin)) {
		name[strcspn(name, "\n")] = 0;
		asked = 0;
		void *found = ptw_next_find(&next, name);
		printf("%s %s %s\n", name, asked ? "asked" : "quick",
		       found == __real_dlsym(RTLD_NEXT, name) ? "same" : "different");
	}
	return 0;
}
