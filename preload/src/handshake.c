/* SPDX-License-Identifier: MIT */
/* The handshake; handshake.h says what is guaranteed. */
#define _GNU_SOURCE
#include "handshake.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

void ptw_say(const char *line)
{
	char text[160] = "ptweave: ";
	size_t used = strlen(text), length = strlen(line);
	if (length > sizeof text - used - 1)
		length = sizeof text - used - 1;
	memcpy(text + used, line, length);
	text[used + length] = '\n';
	PTW_SYS(SYS_write, 2, text, used + length + 1, 0, 0, 0);
}

static uint64_t inode_of(int fd)
{
	struct stat status;
	return PTW_SYS(SYS_fstat, fd, &status, 0, 0, 0, 0) == 0 ? status.st_ino : 0;
}

/* Move a descriptor out of the program's way. */
static int move_high(int fd)
{
	struct rlimit limit = {0, 0};
	long base = PTW_DESCRIPTOR_BASE;
	PTW_SYS(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, &limit, 0, 0);
	if (limit.rlim_cur < PTW_DESCRIPTOR_BASE + 32)
		base = limit.rlim_cur > 48 ? (long)limit.rlim_cur - 32 : 16;
	long high = PTW_SYS(SYS_fcntl, fd, F_DUPFD_CLOEXEC, base, 0, 0, 0);
	if (high < 0)
		return fd; /* a tiny limit: better an odd number than none */
	ptw_close(fd);
	return (int)high;
}

static void forget(struct ptw_peer *peer)
{
	peer->socket = peer->pipe[0] = peer->pipe[1] = -1;
	memset(peer->inode, 0, sizeof peer->inode);
	peer->piped = peer->no_wait = peer->awaited = 0;
}

/* A full backlog says EAGAIN; -ETIMEDOUT when it stays full. */
static long connect_in_time(const struct ptw_peer *peer)
{
	uint64_t deadline = ptw_monotonic_ns() + PTW_HANDSHAKE_TIMEOUT_S * 1000000000ull;
	for (;;) {
		long result = PTW_SYS(SYS_connect, peer->socket, &peer->address, sizeof peer->address, 0, 0, 0);
		if (result != -EAGAIN && result != -EINTR)
			return result;
		if (ptw_monotonic_ns() >= deadline)
			return -ETIMEDOUT;
		ptw_sleep_ns(2000000);
	}
}

int ptw_peer_init(struct ptw_peer *peer)
{
	forget(peer);
	long fd = PTW_SYS(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, 0, 0, 0);
	if (fd < 0)
		return (int)fd;
	peer->socket = (int)fd;
	int ends[2];
	long result = connect_in_time(peer);
	if (result == 0)
		result = PTW_SYS(SYS_pipe2, ends, O_CLOEXEC, 0, 0, 0, 0);
	if (result < 0) {
		ptw_close(peer->socket);
		forget(peer);
		return (int)result;
	}
	peer->socket = move_high(peer->socket);
	peer->pipe[0] = move_high(ends[0]);
	peer->pipe[1] = move_high(ends[1]);
	peer->inode[0] = inode_of(peer->socket);
	peer->inode[1] = inode_of(peer->pipe[0]);
	peer->inode[2] = inode_of(peer->pipe[1]);
	return 0;
}

int ptw_peer_intact(const struct ptw_peer *peer)
{
	return peer->socket >= 0 && inode_of(peer->socket) == peer->inode[0] &&
	       inode_of(peer->pipe[0]) == peer->inode[1] && inode_of(peer->pipe[1]) == peer->inode[2];
}

void ptw_peer_deinit(struct ptw_peer *peer)
{
	const int fds[3] = {peer->socket, peer->pipe[0], peer->pipe[1]};
	for (int i = 0; i < 3; i++)
		if (fds[i] >= 0 && inode_of(fds[i]) == peer->inode[i])
			ptw_close(fds[i]);
	forget(peer);
}

static size_t descriptors_of(const struct ptw_peer *peer, int memfd, int vector)
{
	return memfd >= 0 ? (vector >= 0 ? 3 + peer->watch_count : 2) : peer->piped ? 0 : 1;
}

static long send_hello(const struct ptw_peer *peer, struct ptw_hello *hello, int memfd, int vector)
{
	union {
		char bytes[CMSG_SPACE((3 + PTW_WATCHES) * sizeof(int))];
		struct cmsghdr align;
	} control = {.bytes = {0}};
	size_t descriptors = descriptors_of(peer, memfd, vector);
	int fds[3 + PTW_WATCHES] = {peer->pipe[1], memfd, vector};
	memcpy(fds + 3, peer->watches, sizeof peer->watches);
	struct iovec part = {hello, sizeof *hello};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	if (descriptors == 0)
		return PTW_SYS(SYS_sendmsg, peer->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT, 0, 0, 0);
	message.msg_control = control.bytes;
	message.msg_controllen = CMSG_SPACE(descriptors * sizeof(int));
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(descriptors * sizeof(int));
	memcpy(CMSG_DATA(header), fds, descriptors * sizeof(int));
	return PTW_SYS(SYS_sendmsg, peer->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT, 0, 0, 0);
}

/* Wait until `fd` is ready for `events`, the socket hung up (-EPIPE) or `deadline` passed (-ETIMEDOUT). */
static int await(const struct ptw_peer *peer, int fd, short events, uint64_t deadline)
{
	for (;;) {
		uint64_t now = ptw_monotonic_ns();
		if (now >= deadline)
			return -ETIMEDOUT;
		struct timespec left = {(time_t)((deadline - now) / 1000000000), (long)((deadline - now) % 1000000000)};
		struct pollfd both[2] = {{fd, events, 0}, {peer->socket, POLLRDHUP, 0}};
		long ready = PTW_SYS(SYS_ppoll, both, 2, &left, 0, 0, 0);
		if (ready < 0 && ready != -EINTR)
			return (int)ready;
		if (ready > 0 && (both[0].revents & events))
			return 0;
		if (ready > 0 && (both[1].revents || both[0].revents))
			return -EPIPE;
	}
}

enum ptw_outcome ptw_hello_send(struct ptw_peer *peer, struct ptw_hello *hello, int memfd, int vector)
{
	peer->deadline = ptw_monotonic_ns() + PTW_HANDSHAKE_TIMEOUT_S * 1000000000ull;
	peer->awaited = !peer->no_wait || descriptors_of(peer, memfd, vector) > 0;
	hello->magic = PTW_HANDSHAKE_MAGIC;
	hello->version = PTW_HANDSHAKE_VERSION;
	long sent;
	while ((sent = send_hello(peer, hello, memfd, vector)) == -EAGAIN || sent == -EINTR) {
		int waited = await(peer, peer->socket, POLLOUT, peer->deadline);
		if (waited < 0)
			return waited == -ETIMEDOUT ? PTW_TIMEOUT : PTW_GONE;
	}
	return sent == sizeof *hello ? PTW_GO : PTW_GONE;
}

enum ptw_outcome ptw_welcome_await(struct ptw_peer *peer)
{
	struct ptw_welcome welcome;
	if (!peer->awaited)
		return PTW_GO;
	int waited = await(peer, peer->pipe[0], POLLIN, peer->deadline);
	if (waited < 0)
		return waited == -ETIMEDOUT ? PTW_TIMEOUT : PTW_GONE;
	long got = PTW_SYS(SYS_read, peer->pipe[0], &welcome, sizeof welcome, 0, 0, 0);
	if (got != sizeof welcome || welcome.magic != PTW_HANDSHAKE_MAGIC || welcome.version != PTW_HANDSHAKE_VERSION)
		return PTW_GONE;
	peer->piped = welcome.status == PTW_WELCOME_GO;
	peer->no_wait = peer->piped && (welcome.flags & PTW_WELCOME_NO_WAIT);
	return peer->piped ? PTW_GO : PTW_REFUSED;
}
