/* SPDX-License-Identifier: MIT */
/* /proc/self/task/TID is the thread TID, whichever thread looks; /proc/self is a process that is not the thread. */
#include "promise.h"

#include <sys/prctl.h>
#include <sys/stat.h>

static struct gate gate = GATE;
static pid_t other;

static void named(pid_t tid, const char *name)
{
	char path[64], text[32] = "";
	snprintf(path, sizeof path, "/proc/self/task/%d/comm", tid);
	FILE *file = fopen(path, "r");
	PROMISE(file && fgets(text, sizeof text, file) && strcmp(text, name) == 0);
	fclose(file);
	snprintf(path, sizeof path, "/proc/%d/task/%d", getpid(), tid);
	PROMISE(access(path, R_OK) == 0);
}

static void number_in_status(const char *path, pid_t wanted)
{
	char text[512] = "";
	int fd = open(path, O_RDONLY);
	PROMISE(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
	close(fd);
	char *line = strstr(text, "\nPid:");
	PROMISE(line && atoi(line + 5) == wanted);
}

static void *look(void *unused)
{
	struct stat status;
	prctl(PR_SET_NAME, "looker");
	other = gettid();
	named(gettid(), "looker\n");
	named(getpid(), "main one\n");
	number_in_status("/proc/self/status", getpid());
	number_in_status("/proc/thread-self/status", gettid());
	PROMISE(stat("/proc/self/task/1", &status) == -1 && errno == ENOENT);
	gate_open(&gate, 1);
	gate_wait(&gate, 2);
	return unused;
}

int main(void)
{
	prctl(PR_SET_NAME, "main one");
	pthread_t thread = start(look, NULL);
	gate_wait(&gate, 1);
	named(other, "looker\n");
	gate_open(&gate, 2);
	join(thread);
	return 0;
}
