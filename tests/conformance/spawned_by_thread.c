/* SPDX-License-Identifier: MIT */
/* What one thread spawned another waits for; its parent is the process; it begins with the signal mask it should have. */
#include "promise.h"

#include <spawn.h>

extern char **environ;

static pid_t child;

static void *spawn_one(void *script)
{
	char *words[] = {"sh", "-c", script, NULL};
	PROMISE(posix_spawnp(&child, "sh", NULL, NULL, words, environ) == 0);
	return NULL;
}

static void *wait_for_it(void *unused)
{
	siginfo_t info = {0};
	PROMISE(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0 && info.si_pid == child);
	PROMISE(info.si_code == CLD_EXITED && info.si_status == 3);
	PROMISE(waitpid(-1, NULL, 0) == child);
	return unused;
}

int main(void)
{
	char script[200];
	int status;
	snprintf(script, sizeof script, "sleep 0.1; read a b c parent rest < /proc/$$/stat; [ $parent = %d ] && exit 3; exit 9",
		 getpid());
	in_thread(spawn_one, script);
	in_thread(wait_for_it, NULL);
	in_thread(spawn_one, "kill -TERM $$; exit 5");
	PROMISE(wait(&status) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	PROMISE(wait(&status) == -1 && errno == ECHILD);
	char *words[] = {"/no/such/program", NULL};
	PROMISE(posix_spawn(&child, words[0], NULL, NULL, words, environ) == ENOENT);
	return 0;
}
