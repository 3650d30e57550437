/* SPDX-License-Identifier: MIT */
/* Calls that few programs make work on fresh pages: extended attributes, message queues, vectors with flags, messages by
 * the dozen, scheduling, directories read raw, temporary names, capabilities. */
#include "fresh.h"

#include <dirent.h>
#include <mqueue.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/xattr.h>

static void use_queue(char *memory)
{
	mqd_t queue;
	struct mq_attr *attributes = (struct mq_attr *)(memory + 4000);
	char name[40];
	snprintf(name, sizeof name, "/conformance.%d", (int)syscall(SYS_gettid));
	strcpy(memory, name);
	attributes->mq_maxmsg = 2, attributes->mq_msgsize = 100, attributes->mq_flags = 0;
	queue = mq_open(memory, O_RDWR | O_CREAT | O_EXCL, 0600, attributes);
	if (queue == (mqd_t)-1 && (errno == ENOSYS || errno == EACCES || errno == ENOENT))
		return; /* a kernel without them */
	PROMISE(queue != (mqd_t)-1 && mq_unlink(memory) == 0);
	PROMISE(mq_send(queue, memory + 6000, 50, 3) == 0 && mq_getattr(queue, attributes) == 0 && attributes->mq_curmsgs == 1);
	PROMISE(mq_receive(queue, memory + 4096, 100, (unsigned *)(memory + 5000)) == 50 && *(unsigned *)(memory + 5000) == 3);
	PROMISE(mq_close(queue) == 0);
}

static void use_files(char *memory)
{
	strcpy(memory + 4080, "/tmp/conformance.XXXXXX");
	int fd = mkstemp(memory + 4080);
	struct iovec vector = {memory + 1000, 500};
	memset(memory + 1000, 'v', 500);
	PROMISE(fd >= 0 && pwritev2(fd, &vector, 1, 0, 0) == 500);
	vector.iov_base = memory + 7000;
	PROMISE(preadv2(fd, &vector, 1, 0, 0) == 500 && memory[7499] == 'v');
	strcpy(memory + 100, "user.conformance");
	if (fsetxattr(fd, memory + 100, memory + 7000, 20, 0) == 0) {
		PROMISE(getxattr(memory + 4080, memory + 100, memory + 3000, 100) == 20 && memory[3019] == 'v');
		PROMISE(flistxattr(fd, memory + 2000, 900) > 0);
	} else {
		PROMISE(errno == EOPNOTSUPP || errno == EPERM);
	}
	strcpy(memory, memory + 4080);
	strcat(memory, ".other");
	PROMISE(renameat2(AT_FDCWD, memory + 4080, AT_FDCWD, memory, 0) == 0 && unlink(memory) == 0 && close(fd) == 0);
	fd = open("/", O_RDONLY | O_DIRECTORY);
	PROMISE(getdents64(fd, memory + 50, 8000) > 0 && close(fd) == 0);
}

static void use_messages(char *memory)
{
	int pair[2];
	struct mmsghdr *messages = (struct mmsghdr *)(memory + 4096 - 64);
	struct iovec *vectors = (struct iovec *)(memory + 5000);
	PROMISE(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
	memset(messages, 0, 2 * sizeof *messages);
	for (int i = 0; i < 2; i++) {
		vectors[i] = (struct iovec){memory + 100 + 3000 * i, 10};
		messages[i].msg_hdr.msg_iov = &vectors[i];
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	PROMISE(sendmmsg(pair[0], messages, 2, 0) == 2);
	vectors[0].iov_base = memory + 7000;
	PROMISE(recvmmsg(pair[1], messages, 2, 0, NULL) == 2 && messages[0].msg_len == 10);
	PROMISE(close(pair[0]) == 0 && close(pair[1]) == 0);
}

static void body(char *memory)
{
	use_queue(memory);
	use_files(memory);
	use_messages(memory);
	PROMISE(sched_rr_get_interval(0, (struct timespec *)(memory + 2000)) == 0);
	PROMISE(pthread_getaffinity_np(pthread_self(), 128, (cpu_set_t *)(memory + 4090)) == 0);
	PROMISE(prctl(PR_GET_NAME, memory + 4094) == 0 && strlen(memory + 4094) > 0);
	int set = semget(IPC_PRIVATE, 3, 0600);
	PROMISE(set >= 0 && semctl(set, 0, GETALL, memory + 4095) == 0 && semctl(set, 0, IPC_RMID) == 0);
}

int main(void)
{
	with_fresh_memory(body);
	return 0;
}
