/* SPDX-License-Identifier: MIT */
/* recv, recvfrom, recvmsg and recvmmsg fill fresh pages: data, addresses, headers and control messages. */
#include "fresh.h"

#include <sys/socket.h>
#include <sys/un.h>

static int ends[2];

static void body(char *memory)
{
	struct sockaddr_un *address = (struct sockaddr_un *)(memory + 6000);
	socklen_t *length = (socklen_t *)(memory + 7000);
	PROMISE(send(ends[1], "one", 3, 0) == 3);
	PROMISE(recv(ends[0], memory, 100, 0) == 3 && memcmp(memory, "one", 3) == 0);
	PROMISE(sendto(ends[1], "four", 4, 0, NULL, 0) == 4);
	*length = sizeof *address;
	PROMISE(recvfrom(ends[0], memory + 5000, 100, 0, (void *)address, length) == 4);
	PROMISE(memcmp(memory + 5000, "four", 4) == 0);
}

static void body_message(char *memory)
{
	struct msghdr *header = (struct msghdr *)(memory + 100);
	struct iovec *list = (struct iovec *)(memory + 4300);
	char *control = memory + 8 * 700;
	int fd = dup(0);
	memset(header, 0, sizeof *header);
	strcpy(memory + 2000, "with a descriptor");
	*list = (struct iovec){memory + 2000, 17};
	header->msg_iov = list, header->msg_iovlen = 1;
	header->msg_control = control, header->msg_controllen = CMSG_SPACE(sizeof fd);
	struct cmsghdr *rights = CMSG_FIRSTHDR(header);
	rights->cmsg_level = SOL_SOCKET, rights->cmsg_type = SCM_RIGHTS, rights->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(rights), &fd, sizeof fd);
	PROMISE(sendmsg(ends[1], header, 0) == 17 && close(fd) == 0);
	memset(memory, 0, FRESH_ROOM);
	*list = (struct iovec){memory + 3000, 100};
	header->msg_iov = list, header->msg_iovlen = 1;
	header->msg_control = control, header->msg_controllen = CMSG_SPACE(sizeof fd);
	PROMISE(recvmsg(ends[0], header, 0) == 17 && memcmp(memory + 3000, "with a descriptor", 17) == 0);
	rights = CMSG_FIRSTHDR(header);
	PROMISE(rights && rights->cmsg_type == SCM_RIGHTS);
	memcpy(&fd, CMSG_DATA(rights), sizeof fd);
	PROMISE(fcntl(fd, F_GETFD) >= 0 && close(fd) == 0);
}

static void body_many(char *memory)
{
	struct mmsghdr *headers = (struct mmsghdr *)memory;
	struct iovec *lists = (struct iovec *)(memory + 4200);
	memset(headers, 0, 2 * sizeof *headers);
	for (int i = 0; i < 2; i++) {
		lists[i] = (struct iovec){memory + 5000 + i * 1000, 100};
		headers[i].msg_hdr.msg_iov = &lists[i], headers[i].msg_hdr.msg_iovlen = 1;
	}
	PROMISE(send(ends[1], "a", 1, 0) == 1 && send(ends[1], "bc", 2, 0) == 2);
	PROMISE(recvmmsg(ends[0], headers, 2, 0, NULL) == 2);
	PROMISE(headers[0].msg_len == 1 && headers[1].msg_len == 2 && memcmp(memory + 6000, "bc", 2) == 0);
	lists[0].iov_len = 1, lists[1].iov_len = 2;
	PROMISE(sendmmsg(ends[1], headers, 2, 0) == 2);
	PROMISE(recv(ends[0], memory, 10, 0) == 1 && recv(ends[0], memory, 10, 0) == 2);
}

int main(void)
{
	PROMISE(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
	with_fresh_memory(body);
	with_fresh_memory(body_message);
	with_fresh_memory(body_many);
	return 0;
}
