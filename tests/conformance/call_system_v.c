/* SPDX-License-Identifier: MIT */
/* System V semaphores and message queues work with structures in fresh pages, and undo belongs to the process. */
#include "fresh.h"

#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>

static int queue, semaphores;

static void body(char *memory)
{
	struct { long type; char text[100]; } *message = (void *)memory;
	message->type = 5;
	strcpy(message->text, "queued");
	PROMISE(msgsnd(queue, message, 10, 0) == 0);
	message = (void *)(memory + 4000);
	PROMISE(msgrcv(queue, message, 100, 0, 0) == 10 && message->type == 5 && strcmp(message->text, "queued") == 0);
	PROMISE(msgctl(queue, IPC_STAT, (struct msqid_ds *)(memory + 5000)) == 0);
	struct sembuf *operation = (struct sembuf *)(memory + 6000);
	*operation = (struct sembuf){0, 1, SEM_UNDO};
	PROMISE(semop(semaphores, operation, 1) == 0);
	*operation = (struct sembuf){0, -1, SEM_UNDO};
	PROMISE(semop(semaphores, operation, 1) == 0);
	PROMISE(semctl(semaphores, 0, GETALL, (unsigned short *)(memory + 7000)) == 0);
	PROMISE(*(unsigned short *)(memory + 7000) == 0);
}

static void *raise_it(void *unused)
{
	struct sembuf operation = {0, 1, SEM_UNDO};
	PROMISE(semop(semaphores, &operation, 1) == 0);
	return unused;
}

int main(void)
{
	queue = msgget(IPC_PRIVATE, 0600);
	semaphores = semget(IPC_PRIVATE, 2, 0600);
	PROMISE(queue >= 0 && semaphores >= 0);
	with_fresh_memory(body);
	in_thread(raise_it, NULL);
	PROMISE(semctl(semaphores, 0, GETVAL) == 1); /* the end of a thread undoes nothing */
	PROMISE(msgctl(queue, IPC_RMID, NULL) == 0 && semctl(semaphores, 0, IPC_RMID) == 0);
	return 0;
}
