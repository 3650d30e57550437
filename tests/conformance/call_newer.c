/* SPDX-License-Identifier: MIT */
/* Processes by descriptor, files by openat2 and fchmodat2, what is cached of a file: calls of newer kernels. */
#include "fresh.h"

#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { PIDFD_SEND_SIGNAL = 424, PIDFD_OPEN = 434, OPENAT2 = 437, PIDFD_GETFD = 438, CACHESTAT = 451, FCHMODAT2 = 452 };

static volatile sig_atomic_t came;

static void note(int number)
{
	came = number;
}

static void use_children(void)
{
	siginfo_t info;
	pid_t child = fork();
	if (child == 0) {
		for (;;)
			pause();
	}
	int pidfd = (int)syscall(PIDFD_OPEN, child, 0);
	PROMISE(child > 0 && pidfd >= 0 && (fcntl(pidfd, F_GETFD) & FD_CLOEXEC));
	PROMISE(syscall(PIDFD_SEND_SIGNAL, pidfd, SIGTERM, NULL, 0) == 0);
	PROMISE(waitid((idtype_t)3 /* P_PIDFD */, (id_t)pidfd, &info, WEXITED) == 0 && info.si_pid == child);
	PROMISE(info.si_code == CLD_KILLED && info.si_status == SIGTERM);
	PROMISE(syscall(PIDFD_SEND_SIGNAL, pidfd, 0, NULL, 0) == -1 && errno == ESRCH && close(pidfd) == 0);
	PROMISE(syscall(PIDFD_OPEN, -1, 0) == -1 && errno == EINVAL);
	PROMISE(syscall(PIDFD_SEND_SIGNAL, 9999, 0, NULL, 0) == -1 && errno == EBADF);
}

static void use_ourselves(char *memory)
{
	int pair[2];
	int self = (int)syscall(PIDFD_OPEN, getpid(), 0);
	signal(SIGUSR1, note);
	PROMISE(self >= 0 && syscall(PIDFD_SEND_SIGNAL, self, SIGUSR1, NULL, 0) == 0 && came == SIGUSR1);
	PROMISE(pipe(pair) == 0);
	int copy = (int)syscall(PIDFD_GETFD, self, pair[1], 0);
	if (copy >= 0)
		PROMISE(write(copy, "x", 1) == 1 && read(pair[0], memory, 1) == 1 && *memory == 'x' && close(copy) == 0);
	else
		PROMISE(errno == EPERM); /* who may not trace */
	PROMISE(close(pair[0]) == 0 && close(pair[1]) == 0 && close(self) == 0);
}

static void use_files(char *memory)
{
	struct open_how *how = (struct open_how *)(memory + 4096 - 8);
	struct stat status;
	char name[] = "/tmp/conformance.XXXXXX";
	int made = mkstemp(name);
	*how = (struct open_how){.flags = O_RDONLY, .resolve = RESOLVE_NO_SYMLINKS};
	strcpy(memory + 6000, name);
	int fd = (int)syscall(OPENAT2, AT_FDCWD, memory + 6000, how, sizeof *how);
	PROMISE(made >= 0 && fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode));
	long result = syscall(FCHMODAT2, AT_FDCWD, memory + 6000, 0640, 0);
	if (result == 0)
		PROMISE(fstat(fd, &status) == 0 && (status.st_mode & 0777) == 0640);
	else
		PROMISE(errno == ENOSYS); /* an older kernel */
	uint64_t *counted = (uint64_t *)(memory + 8192 - 48), range[2] = {0, 0};
	result = syscall(CACHESTAT, fd, range, counted, 0);
	PROMISE((result == 0 && counted[0] == 0) || (result == -1 && errno == ENOSYS));
	PROMISE(close(fd) == 0 && close(made) == 0 && unlink(name) == 0);
	how->resolve = 0;
	PROMISE(syscall(OPENAT2, AT_FDCWD, "/nothing/here", how, sizeof *how) == -1 && errno == ENOENT);
	PROMISE(syscall(OPENAT2, AT_FDCWD, name, how, 4) == -1 && errno == EINVAL);
}

static void body(char *memory)
{
	use_ourselves(memory);
	use_files(memory);
}

int main(void)
{
	use_children();
	with_fresh_memory(body);
	return 0;
}
