/* SPDX-License-Identifier: MIT */
/*
 * Process numbers that the kernel passes on over sockets (unix(7): SO_PEERCRED, SCM_CREDENTIALS).
 *
 * It knows each thread that is a process by a number of its own. To the program they are all the main process: numbers it
 * reads are made that one's, and where it sends that one's, which only root may do for another process, its thread's own
 * goes instead. Other programs see the thread's, then, as they do in SO_PEERCRED.
 */
#ifndef PTWEAVE_CREDENTIALS_H
#define PTWEAVE_CREDENTIALS_H

#include "sys.h"

#include <sys/socket.h>

/* What getsockopt returned. */
PTW_HIDDEN void ptw_credentials_of_peer(int level, int name, void *ret, const socklen_t *length);
/* What recvmsg and recvmmsg returned. */
PTW_HIDDEN void ptw_credentials_received(struct msghdr *message);
PTW_HIDDEN void ptw_credentials_received_all(struct mmsghdr *messages, int count);
/* What `send`, which is sendmsg, returns in the end, after it returned `sent`: it is called again where only the number was
 * wrong. */
PTW_HIDDEN ssize_t ptw_credentials_sent(ssize_t sent, ssize_t (*send)(int, const struct msghdr *, int), int fd,
					const struct msghdr *message, int flags);

#endif
