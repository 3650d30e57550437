/* SPDX-License-Identifier: MIT */
/* readdir, getdents64, scandir, getcwd, readlink, realpath and mkdir work with fresh pages. */
#include "fresh.h"

#include <dirent.h>
#include <sys/stat.h>

static void body(char *memory)
{
	int fd = open("/proc/self", O_RDONLY | O_DIRECTORY), found = 0;
	long bytes;
	PROMISE(fd >= 0);
	while ((bytes = syscall(SYS_getdents64, fd, memory, 4096)) > 0)
		for (long at = 0; at < bytes;) {
			struct dirent64 *entry = (struct dirent64 *)(memory + at);
			found += strcmp(entry->d_name, "status") == 0;
			at += entry->d_reclen;
		}
	PROMISE(bytes == 0 && found == 1 && close(fd) == 0);
	PROMISE(getcwd(memory, 4096) == memory && memory[0] == '/');
	PROMISE(readlink("/proc/self/exe", memory + 4000, 4000) > 0 && memory[4000] == '/');
	strcpy(memory, "/proc/self/../self");
	char *resolved = realpath(memory, NULL);
	PROMISE(resolved && strncmp(resolved, "/proc/", 6) == 0);
	free(resolved);
}

static void body_make(char *memory)
{
	struct dirent **names;
	snprintf(memory, 100, "/tmp/conformance.%d.XXXXXX", (int)getpid());
	PROMISE(mkdtemp(memory) == memory);
	strcpy(stpcpy(memory + 4000, memory), "/inner");
	PROMISE(mkdir(memory + 4000, 0700) == 0 && mkdir(memory + 4000, 0700) == -1 && errno == EEXIST);
	int count = scandir(memory, &names, NULL, alphasort);
	PROMISE(count == 3 && strcmp(names[2]->d_name, "inner") == 0);
	while (count--)
		free(names[count]);
	free(names);
	DIR *directory = opendir(memory);
	PROMISE(directory && readdir(directory) && closedir(directory) == 0);
	PROMISE(rmdir(memory + 4000) == 0 && rmdir(memory) == 0);
}

int main(void)
{
	with_fresh_memory(body);
	with_fresh_memory(body_make);
	return 0;
}
