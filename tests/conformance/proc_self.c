/* SPDX-License-Identifier: MIT */
/* /proc/self is the process for every thread: its pid, its command, its memory as written by any thread. */
#include "promise.h"

static int secret;

static void *look(void *unused)
{
	char target[64], word[256] = "";
	ssize_t length = readlink("/proc/self", target, sizeof target - 1);
	PROMISE(length > 0);
	target[length] = 0;
	PROMISE(atoi(target) == getpid());
	int fd = open("/proc/self/mem", O_RDONLY), value = 0;
	secret = 77;
	PROMISE(fd >= 0 && pread(fd, &value, sizeof value, (off_t)(uintptr_t)&secret) == sizeof value && value == 77);
	close(fd);
	fd = open("/proc/self/cmdline", O_RDONLY);
	PROMISE(read(fd, word, sizeof word - 1) > 0 && strcmp(word, program_invocation_name) == 0);
	close(fd);
	return unused;
}

int main(void)
{
	look(NULL);
	in_thread(look, NULL);
	return 0;
}
