/* SPDX-License-Identifier: MIT */
/* Credentials over sockets; credentials.h says what is guaranteed. */
#define _GNU_SOURCE
#include "credentials.h"

#include "slots.h"

#include <errno.h>
#include <string.h>

enum { LONGEST = 4096 }; /* bytes of control messages that are sent again: the kernel's limit for descriptors is 1 KiB */

static void make_ours(struct ucred *told)
{
	if (told->pid > 0 && ptw_slot_had_pid(told->pid))
		told->pid = (pid_t)ptw_shared->main_pid;
}

void ptw_credentials_of_peer(int level, int name, void *ret, const socklen_t *length)
{
	if (level == SOL_SOCKET && name == SO_PEERCRED && *length == sizeof(struct ucred))
		make_ours(ret);
}

static struct ucred *credentials_in(struct cmsghdr *item)
{
	bool found = item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_CREDENTIALS &&
		     item->cmsg_len == CMSG_LEN(sizeof(struct ucred));
	return found ? (struct ucred *)CMSG_DATA(item) : NULL;
}

void ptw_credentials_received(struct msghdr *message)
{
	for (struct cmsghdr *item = CMSG_FIRSTHDR(message); item; item = CMSG_NXTHDR(message, item))
		if (credentials_in(item))
			make_ours(credentials_in(item));
}

void ptw_credentials_received_all(struct mmsghdr *messages, int count)
{
	for (int i = 0; i < count; i++)
		ptw_credentials_received(&messages[i].msg_hdr);
}

/* Put this thread's number where the program's stands. */
static bool put_own(struct msghdr *message)
{
	bool changed = false;
	for (struct cmsghdr *item = CMSG_FIRSTHDR(message); item; item = CMSG_NXTHDR(message, item)) {
		struct ucred *told = credentials_in(item);
		if (!told || told->pid != (pid_t)ptw_shared->main_pid)
			continue;
		told->pid = (pid_t)ptw_slot()->pid;
		changed = true;
	}
	return changed;
}

ssize_t ptw_credentials_sent(ssize_t sent, ssize_t (*send)(int, const struct msghdr *, int), int fd,
			     const struct msghdr *message, int flags)
{
	_Alignas(struct cmsghdr) char control[LONGEST];
	if (sent >= 0 || errno != EPERM || ptw_is_main() || message->msg_controllen > sizeof control)
		return sent;
	struct msghdr again = *message;
	again.msg_control = memcpy(control, message->msg_control, message->msg_controllen);
	return put_own(&again) ? send(fd, &again, flags) : sent;
}
