/* SPDX-License-Identifier: MIT */
/* A limit of address space, of data or of a file's size holds for what the program asks for: threads and forks go on
 * as before, large blocks and large files do not, and what is executed inherits it. */
#include "../conformance/promise.h"

#include <stdbool.h>
#include <sys/resource.h>

enum { LIMIT = 256 << 20, FILE_LIMIT = 1 << 20, BLOCK = 1 << 20 };

static void *work(void *unused)
{
	char *block = malloc(BLOCK);
	PROMISE(block != NULL);
	memset(block, 1, BLOCK);
	free(block);
	return unused;
}

static void *forks(void *unused)
{
	int status = 0;
	pid_t child = fork();
	if (child == 0) {
		work(NULL);
		in_thread(work, NULL);
		_exit(3);
	}
	PROMISE(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 3);
	return unused;
}

/* Would a shell say that it has the limit? */
static void inherits(const char *question, const char *answer)
{
	char line[64] = "";
	int ends[2], status = 0;
	PROMISE(pipe(ends) == 0);
	pid_t child = fork();
	if (child == 0) {
		dup2(ends[1], STDOUT_FILENO);
		execl("/bin/sh", "sh", "-c", question, NULL);
		_exit(9);
	}
	close(ends[1]);
	PROMISE(child > 0 && read(ends[0], line, sizeof line - 1) > 0 && strcmp(line, answer) == 0);
	PROMISE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close(ends[0]);
}

static void limit(int resource, rlim_t most, bool hard)
{
	struct rlimit wanted, now;
	PROMISE(getrlimit(resource, &wanted) == 0);
	wanted.rlim_cur = most;
	if (hard)
		wanted.rlim_max = most;
	PROMISE(setrlimit(resource, &wanted) == 0);
	PROMISE(getrlimit(resource, &now) == 0 && now.rlim_cur == most && now.rlim_max == wanted.rlim_max);
	wanted.rlim_cur = now.rlim_max == RLIM_INFINITY ? 2 : most + 1;
	wanted.rlim_max = wanted.rlim_cur - 1;
	PROMISE(setrlimit(resource, &wanted) == -1 && errno == EINVAL);
	in_thread(work, NULL);
	forks(NULL);
	in_thread(forks, NULL);
}

static void of_memory(int resource, const char *question)
{
	limit(resource, LIMIT, false);
	PROMISE(malloc(1ul << 30) == NULL && errno == ENOMEM);
	PROMISE(mmap(NULL, 1ul << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
	inherits(question, "262144\n");
	struct rlimit none;
	PROMISE(getrlimit(resource, &none) == 0);
	none.rlim_cur = none.rlim_max;
	PROMISE(setrlimit(resource, &none) == 0);
	void *block = malloc(1ul << 30);
	PROMISE(block != NULL);
	free(block);
}

static void of_files(void)
{
	char name[] = "/tmp/limits-XXXXXX";
	signal(SIGXFSZ, SIG_IGN);
	limit(RLIMIT_FSIZE, FILE_LIMIT, true);
	int file = mkstemp(name);
	PROMISE(file >= 0 && unlink(name) == 0);
	PROMISE(pwrite(file, "x", 1, FILE_LIMIT - 1) == 1);
	PROMISE(pwrite(file, "x", 1, FILE_LIMIT) == -1 && errno == EFBIG);
	inherits("ulimit -f", "2048\n");
}

int main(void)
{
	in_thread(work, NULL);
	of_memory(RLIMIT_AS, "ulimit -v");
	of_memory(RLIMIT_DATA, "ulimit -d");
	of_files();
	return 0;
}
