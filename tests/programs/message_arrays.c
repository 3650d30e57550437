// SPDX-License-Identifier: MIT
/*
 * Sends and receives several messages with one call (sendmmsg, recvmmsg): addresses, vectors, control messages, a page
 * that is not there yet, memory that is none, and more messages than the recorder looks at.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MANY = 11, ROOM = 100 };

#define CHECK(truth)                                                     \
	do {                                                             \
		if (!(truth)) {                                          \
			dprintf(2, "line %d: errno %d\n", __LINE__, errno); \
			return 1;                                        \
		}                                                        \
	} while (0)

static char rooms[MANY][ROOM];
static char texts[MANY][8];
static struct sockaddr_in senders[MANY];
static struct iovec vectors[MANY][2];

static struct mmsghdr message(int i, void *base, size_t size)
{
	vectors[i][0] = (struct iovec){base, size};
	return (struct mmsghdr){.msg_hdr = {.msg_iov = vectors[i], .msg_iovlen = 1}};
}

/* Receives into rooms of two buffers, the first of three bytes. */
static int receive(int fd, int count, int wanted)
{
	struct mmsghdr list[MANY];

	for (int i = 0; i < count; i++) {
		list[i] = message(i, rooms[i], 3);
		vectors[i][1] = (struct iovec){rooms[i] + 3, ROOM - 3};
		list[i].msg_hdr.msg_iovlen = 2;
		list[i].msg_hdr.msg_name = &senders[i];
		list[i].msg_hdr.msg_namelen = sizeof(senders[i]);
	}
	return recvmmsg(fd, list, (unsigned int)count, MSG_DONTWAIT, NULL) == wanted ? 0 : -1;
}

static int bound(struct sockaddr_in *name)
{
	socklen_t size = sizeof(*name);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	*name = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	return fd >= 0 && !bind(fd, (struct sockaddr *)name, size) && !getsockname(fd, (struct sockaddr *)name, &size) ?
	       fd : -1;
}

/* A page of a file that was never touched. */
static char *absent_page(void)
{
	int fd = open("page", O_RDWR | O_CREAT | O_TRUNC, 0600);
	char *page;

	if (fd < 0 || write(fd, "paged out\n", 10) != 10 || ftruncate(fd, 4096))
		return NULL;
	page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	return page == MAP_FAILED ? NULL : page;
}

int main(void)
{
	struct sockaddr_in from, to;
	struct mmsghdr list[MANY];
	int sender = bound(&from), receiver = bound(&to);
	int pair[2];
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {.head = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
	char *page = absent_page();

	CHECK(sender >= 0 && receiver >= 0 && page);
	printf("%d %d\n", ntohs(from.sin_port), ntohs(to.sin_port));

	/* three of them, the second of two buffers, the last in the page that is not there */
	list[0] = message(0, "first", 5);
	list[1] = message(1, "sec", 3);
	vectors[1][1] = (struct iovec){"ond message", 11};
	list[1].msg_hdr.msg_iovlen = 2;
	list[2] = message(2, page, 9);
	for (int i = 0; i < 3; i++) {
		list[i].msg_hdr.msg_name = &to;
		list[i].msg_hdr.msg_namelen = sizeof(to);
	}
	CHECK(sendmmsg(sender, list, 3, 0) == 3);
	CHECK(!receive(receiver, 5, 3));

	/* the second cannot be read: the first is sent */
	CHECK(!socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
	list[0] = message(0, "good", 4);
	list[0].msg_hdr.msg_control = &control;
	list[0].msg_hdr.msg_controllen = sizeof(control);
	list[1] = message(1, (void *)8, 3);
	CHECK(sendmmsg(pair[0], list, 2, 0) == 1);
	CHECK(!receive(pair[1], 1, 1));

	/* more than are looked at */
	for (int i = 0; i < MANY; i++)
		list[i] = message(i, texts[i], (size_t)sprintf(texts[i], "many%d", i));
	CHECK(sendmmsg(pair[0], list, MANY, 0) == MANY);
	CHECK(!receive(pair[1], MANY, MANY));
	CHECK(recvmmsg(pair[1], list, 1, MSG_DONTWAIT, NULL) == -1 && errno == EAGAIN);
	return 0;
}
