/* SPDX-License-Identifier: MIT */
/* exec from a thread replaces the whole process, under the same pid, with standard output still there.
 *
 * Ends: exit 12 */
#include "promise.h"

static void *replace(void *unused)
{
	char pid[32];
	snprintf(pid, sizeof pid, "%d", (int)getpid());
	execl("/bin/sh", "sh", "-c", "test $$ = $0 && echo replaced && exit 12", pid, NULL);
	broken("exec does not return", __func__, __LINE__);
	return unused;
}

static void *wait_for_ever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

int main(void)
{
	start(wait_for_ever, NULL);
	start(replace, NULL);
	for (;;)
		pause();
}
