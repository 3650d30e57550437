/* SPDX-License-Identifier: MIT */
/* Messages through syscall(): what their vectors lead to may lie where the thread has not looked for long. libuv receives
 * datagrams so. */
#include "fresh.h"

#include <sys/socket.h>
#include <sys/uio.h>

enum { MESSAGES = 2, TEXT = 4 };

static int ends[2];

static void fill(struct mmsghdr *messages, struct iovec *parts, char *text)
{
	for (int i = 0; i < MESSAGES; i++) {
		parts[i] = (struct iovec){text + i * PAGE, TEXT};
		messages[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1};
	}
}

static void receive_many(char *memory)
{
	struct mmsghdr messages[MESSAGES];
	struct iovec parts[MESSAGES];
	fill(messages, parts, memory);
	PROMISE(send(ends[0], "ping", TEXT, 0) == TEXT && send(ends[0], "pong", TEXT, 0) == TEXT);
	PROMISE(syscall(SYS_recvmmsg, ends[1], messages, MESSAGES, 0, NULL) == MESSAGES);
	PROMISE(memcmp(memory, "ping", TEXT) == 0 && memcmp(memory + PAGE, "pong", TEXT) == 0);
	PROMISE(messages[1].msg_len == TEXT);
}

static void receive_one(char *memory)
{
	struct iovec part = {memory, TEXT};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	PROMISE(send(ends[0], "ping", TEXT, 0) == TEXT);
	PROMISE(syscall(SYS_recvmsg, ends[1], &message, 0) == TEXT && memcmp(memory, "ping", TEXT) == 0);
}

static void send_all(char *memory)
{
	struct mmsghdr messages[MESSAGES];
	struct iovec parts[MESSAGES];
	char text[PAGE];
	fill(messages, parts, memory);
	PROMISE(syscall(SYS_sendmmsg, ends[0], messages, MESSAGES, 0) == MESSAGES);
	PROMISE(syscall(SYS_sendmsg, ends[0], &messages[0].msg_hdr, 0) == TEXT);
	for (int i = 0; i <= MESSAGES; i++)
		PROMISE(recv(ends[1], text, sizeof text, 0) == TEXT &&
			memcmp(text, memory + i % MESSAGES * PAGE, TEXT) == 0);
}

static void read_parts(char *memory)
{
	int fd = open("/dev/zero", O_RDWR);
	struct iovec parts[] = {{memory, TEXT}, {memory + PAGE, TEXT}};
	PROMISE(syscall(SYS_preadv2, fd, parts, 2, 0, 0, 0) == 2 * TEXT && memory[PAGE] == 0);
	PROMISE(syscall(SYS_pwritev2, fd, parts, 2, 0, 0, 0) == 2 * TEXT);
	close(fd);
}

int main(void)
{
	PROMISE(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
	with_fresh_memory(receive_many);
	with_fresh_memory(receive_one);
	with_fresh_memory(send_all);
	with_fresh_memory(read_parts);
	return 0;
}
