/* SPDX-License-Identifier: MIT */
/* mincore, process_vm_readv, mlock and getcpu work on fresh pages. */
#include "fresh.h"

#include <sched.h>
#include <sys/uio.h>

static void body(char *memory)
{
	unsigned *cpu = (unsigned *)memory;
	PROMISE(syscall(SYS_getcpu, cpu, memory + 4200, NULL) == 0 && *cpu < 4096);
	char *page = (char *)((uintptr_t)memory & ~(uintptr_t)(PAGE - 1));
	PROMISE(mincore(page, PAGE, (unsigned char *)memory + 5000) == 0);
	struct iovec local = {memory + 6000, 100}, remote = {page, 100};
	PROMISE(process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 100 && memcmp(page, memory + 6000, 100) == 0);
	PROMISE(sched_getaffinity(0, sizeof(cpu_set_t), (cpu_set_t *)(memory + 7000)) == 0);
	struct sched_param *parameters = (struct sched_param *)(memory + 300);
	PROMISE(sched_getparam(0, parameters) == 0 && sched_rr_get_interval(0, (void *)(memory + 400)) == 0);
}

int main(void)
{
	with_fresh_memory(body);
	return 0;
}
