/* SPDX-License-Identifier: MIT */
/* Whichever thread connects, sends or asks: over sockets its process is the one that getpid says. */
#include "promise.h"

#include <sys/socket.h>
#include <sys/un.h>

static struct sockaddr_un address = {.sun_family = AF_UNIX};
static int listener;

static void promise_peer(int fd)
{
	struct ucred peer;
	socklen_t length = sizeof peer;
	PROMISE(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && length == sizeof peer);
	PROMISE(peer.pid == getpid() && peer.uid == getuid() && peer.gid == getgid());
}

static void *connects(void *unused)
{
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	PROMISE(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
	promise_peer(fd);
	char byte;
	PROMISE(read(fd, &byte, 1) == 0); /* the other has looked */
	close(fd);
	return unused;
}

union control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(sizeof(struct ucred))];
};

static struct msghdr message_with(union control *control, struct iovec *part)
{
	memset(control, 0, sizeof *control);
	return (struct msghdr){.msg_iov = part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof *control};
}

static void *sends(void *fd)
{
	char byte = 's';
	struct iovec part = {&byte, 1};
	union control control;
	struct msghdr message = message_with(&control, &part);
	struct ucred self = {getpid(), getuid(), getgid()};
	struct cmsghdr *item = CMSG_FIRSTHDR(&message);
	item->cmsg_level = SOL_SOCKET;
	item->cmsg_type = SCM_CREDENTIALS;
	item->cmsg_len = CMSG_LEN(sizeof self);
	memcpy(CMSG_DATA(item), &self, sizeof self);
	PROMISE(sendmsg(*(int *)fd, &message, 0) == 1);
	PROMISE(memcmp(CMSG_DATA(item), &self, sizeof self) == 0);
	PROMISE(send(*(int *)fd, "x", 1, 0) == 1); /* the kernel says who it was */
	return NULL;
}

static void promise_sender(int fd)
{
	char byte;
	struct iovec part = {&byte, 1};
	union control control;
	struct msghdr message = message_with(&control, &part);
	struct ucred told;
	PROMISE(recvmsg(fd, &message, 0) == 1);
	struct cmsghdr *item = CMSG_FIRSTHDR(&message);
	PROMISE(item && item->cmsg_type == SCM_CREDENTIALS);
	memcpy(&told, CMSG_DATA(item), sizeof told);
	PROMISE(told.pid == getpid() && told.uid == getuid());
}

static void send_between(void)
{
	int pair[2], on = 1;
	PROMISE(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
	PROMISE(setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0);
	pthread_t thread = start(sends, &pair[1]);
	promise_sender(pair[0]);
	promise_sender(pair[0]);
	join(thread);
}

int main(void)
{
	snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "conformance.%d", (int)getpid());
	listener = socket(AF_UNIX, SOCK_STREAM, 0);
	PROMISE(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 1) == 0);
	pthread_t thread = start(connects, NULL);
	int fd = accept(listener, NULL, NULL);
	promise_peer(fd);
	close(fd);
	join(thread);
	send_between();
	PROMISE(geteuid() != 0 || setresuid(65534, 65534, 65534) == 0);
	send_between(); /* without the right to name another process */
	return 0;
}
