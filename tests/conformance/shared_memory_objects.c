/* SPDX-License-Identifier: MIT */
/* POSIX and System V shared memory, memfds and shared anonymous memory are shared with threads and with fork
 * children. */
#include "promise.h"

#include <sys/ipc.h>
#include <sys/shm.h>

static char *memories[4];

static void *change(void *argument)
{
	for (int i = 0; i < 4; i++)
		memories[i][PAGE] += (char)(long)argument;
	return NULL;
}

int main(void)
{
	char name[64];
	int status;
	snprintf(name, sizeof name, "/conformance.%d", (int)getpid());
	int object = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600), memory_fd = memfd_create("one", MFD_CLOEXEC);
	PROMISE(object >= 0 && memory_fd >= 0 && shm_unlink(name) == 0);
	PROMISE(ftruncate(object, 2 * PAGE) == 0 && ftruncate(memory_fd, 2 * PAGE) == 0);
	int segment = shmget(IPC_PRIVATE, 2 * PAGE, IPC_CREAT | 0600);
	memories[0] = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, object, 0);
	memories[1] = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);
	memories[2] = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	memories[3] = shmat(segment, NULL, 0);
	PROMISE(segment >= 0 && memories[3] != (char *)-1 && shmctl(segment, IPC_RMID, NULL) == 0);
	in_thread(change, (void *)1);
	pid_t child = fork();
	if (child == 0) {
		in_thread(change, (void *)2);
		_exit(0);
	}
	PROMISE(waitpid(child, &status, 0) == child && status == 0);
	for (int i = 0; i < 4; i++)
		PROMISE(memories[i][PAGE] == 3);
	return 0;
}
