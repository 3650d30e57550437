/* SPDX-License-Identifier: MIT */
/* A file's mapping can be unmapped in its middle, written to after it was made writable without the file changing, and
 * synchronised by a thread that did not map it. */
#include "promise.h"

#include <setjmp.h>

static char *memory, *shared;
static sigjmp_buf out;
static struct gate gate = GATE;

static void handler(int number) { siglongjmp(out, number); }

static void *look(void *unused)
{
	gate_wait(&gate, 1);
	PROMISE(msync(shared, PAGE, MS_SYNC) == 0 && madvise(shared, PAGE, MADV_WILLNEED) == 0);
	PROMISE(memory[0] == 'a' && memory[PAGE] == 'a' && memory[2 * PAGE] == 'a');
	gate_open(&gate, 2);
	gate_wait(&gate, 3);
	PROMISE(memory[0] == 'b' && memory[2 * PAGE] == 'a');
	memory[1] = 'c';
	if (sigsetjmp(out, 1) == 0) {
		(void)*(volatile char *)(memory + PAGE);
		broken("what was unmapped faults", __func__, __LINE__);
	}
	return unused;
}

int main(void)
{
	char name[] = "/tmp/conformance.XXXXXX", content[3 * PAGE];
	int fd = mkstemp(name);
	memset(content, 'a', sizeof content);
	PROMISE(write(fd, content, sizeof content) == sizeof content && unlink(name) == 0);
	signal(SIGSEGV, handler);
	pthread_t thread = start(look, NULL);
	memory = mmap(NULL, sizeof content, PROT_READ, MAP_PRIVATE, fd, 0);
	shared = mmap(NULL, sizeof content, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	PROMISE(memory != MAP_FAILED && shared != MAP_FAILED);
	gate_open(&gate, 1);
	gate_wait(&gate, 2);
	PROMISE(mprotect(memory, PAGE, PROT_READ | PROT_WRITE) == 0);
	memory[0] = 'b';
	PROMISE(munmap(memory + PAGE, PAGE) == 0);
	gate_open(&gate, 3);
	join(thread);
	PROMISE(memory[1] == 'c' && shared[0] == 'a' && shared[1] == 'a');
	PROMISE(pread(fd, content, 2, 0) == 2 && content[0] == 'a' && content[1] == 'a');
	shared[2 * PAGE] = 'd';
	PROMISE(memory[2 * PAGE] == 'a' || memory[2 * PAGE] == 'd');
	PROMISE(munmap(memory, sizeof content) == 0 && munmap(shared, sizeof content) == 0 && close(fd) == 0);
	return 0;
}
