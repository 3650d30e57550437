/* SPDX-License-Identifier: MIT */
/* Memory is locked and unlocked by threads that never touched it; a thread reads another's memory through the process's
 * number. */
#include "promise.h"

#include <sys/uio.h>

static char *memory;

static void *lock(void *unused)
{
	unsigned char there[8];
	PROMISE(mlock(memory, 8 * PAGE) == 0);
	PROMISE(mincore(memory, 8 * PAGE, there) == 0 && (there[0] & 1) && (there[7] & 1));
	PROMISE(munlock(memory, 8 * PAGE) == 0 && mlock2(memory, PAGE, 0) == 0 && munlock(memory, PAGE) == 0);
	return unused;
}

static void *copy(void *local)
{
	char bytes[100];
	struct iovec here = {bytes, sizeof bytes}, there = {local, sizeof bytes};
	PROMISE(process_vm_readv(getpid(), &here, 1, &there, 1, 0) == sizeof bytes && bytes[99] == 'x');
	memset(bytes, 'y', sizeof bytes);
	there.iov_base = memory + 5 * PAGE;
	PROMISE(process_vm_writev(getpid(), &here, 1, &there, 1, 0) == sizeof bytes);
	return NULL;
}

int main(void)
{
	char local[100];
	memory = untouched(8);
	memset(local, 'x', sizeof local);
	in_thread(lock, NULL);
	in_thread(copy, local);
	PROMISE(memory[5 * PAGE] == 'y' && memory[5 * PAGE + 99] == 'y' && memory[5 * PAGE + 100] == 0);
	return 0;
}
