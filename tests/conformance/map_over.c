/* SPDX-License-Identifier: MIT */
/* A mapping over part of another (MAP_FIXED) replaces it for all threads, with its own protection; the rest stays. A
 * mapping that must not replace one fails. */
#include "promise.h"

#include <setjmp.h>

static char *memory;
static sigjmp_buf out;
static struct gate gate = GATE;

static void handler(int number) { siglongjmp(out, number); }

static int faults(volatile char *place, int write)
{
	if (sigsetjmp(out, 1))
		return 1;
	if (write)
		*place = 1;
	else
		(void)*place;
	return 0;
}

static void *look(void *unused)
{
	memset(memory, 'a', 8 * PAGE);
	gate_open(&gate, 1);
	gate_wait(&gate, 2);
	PROMISE(memory[0] == 'a' && memory[PAGE] == 0 && memory[2 * PAGE] == 'f' && memory[3 * PAGE] == 'a');
	PROMISE(memory[3 * PAGE - 1] == 'f' && memory[7 * PAGE] == 'a');
	PROMISE(!faults(memory + PAGE, 1) && !faults(memory + 2 * PAGE, 0) && faults(memory + 2 * PAGE, 1));
	PROMISE(faults(memory + 4 * PAGE, 0) && faults(memory + 4 * PAGE, 1));
	memory[PAGE + 1] = 'b';
	return unused;
}

int main(void)
{
	char name[] = "/tmp/conformance.XXXXXX", content[PAGE];
	int fd = mkstemp(name), flags = MAP_PRIVATE | MAP_FIXED;
	memset(content, 'f', PAGE);
	PROMISE(write(fd, content, PAGE) == PAGE && unlink(name) == 0);
	memory = untouched(8);
	signal(SIGSEGV, handler);
	pthread_t thread = start(look, NULL);
	gate_wait(&gate, 1);
	PROMISE(mmap(memory + PAGE, PAGE, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0) == memory + PAGE);
	PROMISE(mmap(memory + 2 * PAGE, PAGE, PROT_READ, flags, fd, 0) == memory + 2 * PAGE);
	PROMISE(mmap(memory + 4 * PAGE, PAGE, PROT_NONE, flags | MAP_ANONYMOUS, -1, 0) == memory + 4 * PAGE);
	PROMISE(mmap(memory + 1, PAGE, PROT_NONE, flags | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL);
	PROMISE(mmap(memory, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED &&
		errno == EEXIST);
	gate_open(&gate, 2);
	join(thread);
	PROMISE(memory[PAGE + 1] == 'b' && pread(fd, content, 1, 0) == 1 && content[0] == 'f' && close(fd) == 0);
	return 0;
}
