/* SPDX-License-Identifier: MIT */
/*
 * Memory that a system call will read or write is opened before: the kernel does not fault as we do, it says EFAULT.
 * Such accesses count and are logged like others, with the stack of the call. What is to be written is opened for
 * writing without changing it. Nothing happens while accesses are not tracked. Signal-safe.
 */
#ifndef PTW_TOUCH_H
#define PTW_TOUCH_H

#include "pages.h"

#include <sys/uio.h>

static inline void ptw_touch(const void *start, uint64_t size, bool write, const struct ptw_frame *frame)
{
	if (start && size)
		ptw_touch_slow((uint64_t)start, size, write, frame);
}

PTW_HIDDEN void ptw_touch_string(const char *string, const struct ptw_frame *frame);

/* A list of strings that ends with NULL. */
PTW_HIDDEN void ptw_touch_strings(char *const *list, const struct ptw_frame *frame);

PTW_HIDDEN void ptw_touch_vectors(const struct iovec *vector, uint64_t count, bool write,
				  const struct ptw_frame *frame);

struct msghdr;
PTW_HIDDEN void ptw_touch_message(const struct msghdr *message, bool write, const struct ptw_frame *frame);

/* What a request's last argument points to, if it does. */
PTW_HIDDEN void ptw_touch_ptrace(int request, void *data, const struct ptw_frame *frame);

struct mmsghdr;
PTW_HIDDEN void ptw_touch_messages(const struct mmsghdr *list, unsigned count, bool write, const struct ptw_frame *frame);

#endif
