// SPDX-License-Identifier: MIT
/* Makes calls whose memory is known, for the recorder's tests: messages, vectors, addresses, pages that are not there. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define CHECK(truth)                                                     \
	do {                                                             \
		if (!(truth)) {                                          \
			dprintf(2, "line %d: errno %d\n", __LINE__, errno); \
			return 1;                                        \
		}                                                        \
	} while (0)

static int messages(void)
{
	char control[CMSG_SPACE(sizeof(int))] = {0};
	char room[2][3];
	char back[64];
	struct iovec vector[2] = {{"one", 3}, {"two", 3}};
	struct iovec into[2] = {{room[0], 3}, {room[1], 3}};
	struct msghdr message = {.msg_iov = vector, .msg_iovlen = 2, .msg_control = control,
				 .msg_controllen = sizeof(control)};
	struct msghdr got = {.msg_iov = into, .msg_iovlen = 2, .msg_control = back, .msg_controllen = sizeof(back)};
	struct cmsghdr *one = CMSG_FIRSTHDR(&message);
	int pair[2];

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	one->cmsg_level = SOL_SOCKET;
	one->cmsg_type = SCM_RIGHTS;
	one->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(one), &pair[0], sizeof(int));
	CHECK(sendmsg(pair[0], &message, 0) == 6);
	CHECK(recvmsg(pair[1], &got, 0) == 6);
	return 0;
}

/* A file's page that was never touched: it can be read at exit only. */
static int absent_page(void)
{
	char *page;
	int out = open("copy", O_WRONLY | O_CREAT | O_TRUNC, 0600);
	int fd = open("page", O_RDWR | O_CREAT | O_TRUNC, 0600);

	CHECK(fd >= 0 && write(fd, "paged out\n", 10) == 10 && !ftruncate(fd, 4096));
	page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	CHECK(page != MAP_FAILED);
	CHECK(write(out, page, 11) == 11);
	return 0;
}

static int addresses(void)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "socket-name"};
	socklen_t size = sizeof(name);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	CHECK(fd >= 0 && !bind(fd, (struct sockaddr *)&name, sizeof(name)));
	CHECK(!getsockname(fd, (struct sockaddr *)&name, &size));
	return 0;
}

int main(void)
{
	char long_one[1000];
	struct timespec nap = {0, 1000};
	int pipes[2];
	int out = open("/dev/null", O_WRONLY);

	CHECK(!messages() && !absent_page() && !addresses());
	memset(long_one, 'x', sizeof(long_one));
	CHECK(write(out, long_one, sizeof(long_one)) == 1000);
	syscall(SYS_nanosleep, &nap, NULL);
	CHECK(!pipe(pipes) && write(pipes[1], "x", 1) == 1);
	struct pollfd polled[2] = {{pipes[0], POLLIN, 0}, {pipes[1], 0, 0}};
	CHECK(poll(polled, 2, 0) == 1);
	CHECK(syscall(SYS_write, pipes[1], 1, 5) == -1 && errno == EFAULT);
	return 0;
}
