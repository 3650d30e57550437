/* SPDX-License-Identifier: MIT */
/* setenv, putenv and unsetenv of one thread are seen by the others, and by what is run. */
#include "promise.h"

static void *change(void *unused)
{
	PROMISE(strcmp(getenv("FROM_MAIN"), "1") == 0);
	PROMISE(setenv("FROM_MAIN", "2", 1) == 0 && setenv("FROM_THREAD", "3", 1) == 0);
	PROMISE(putenv("STATIC=4") == 0);
	return unused;
}

int main(void)
{
	setenv("FROM_MAIN", "1", 1);
	setenv("GONE", "1", 1);
	in_thread(change, NULL);
	PROMISE(strcmp(getenv("FROM_MAIN"), "2") == 0 && strcmp(getenv("FROM_THREAD"), "3") == 0);
	PROMISE(strcmp(getenv("STATIC"), "4") == 0 && unsetenv("GONE") == 0);
	PROMISE(WEXITSTATUS(system("test \"$FROM_MAIN$FROM_THREAD$STATIC$GONE\" = 234")) == 0);
	return 0;
}
