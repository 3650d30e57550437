/* SPDX-License-Identifier: MIT */
/* Memory from sbrk is shared by all threads. */
#include "promise.h"

static char *memory;

static void *change(void *unused)
{
	PROMISE(memory[0] == 1);
	memory[10 * PAGE] = 2;
	return unused;
}

int main(void)
{
	memory = sbrk(16 * PAGE);
	PROMISE(memory != (char *)-1);
	memory[0] = 1;
	in_thread(change, NULL);
	PROMISE(memory[10 * PAGE] == 2);
	return 0;
}
