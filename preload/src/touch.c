/* SPDX-License-Identifier: MIT */
/* Opening what system calls use; touch.h says what is guaranteed. */
#define _GNU_SOURCE
#include "touch.h"

#include <sys/socket.h>

enum { LONGEST = 1 << 20, VECTORS = 1024 };

static uint64_t page_end(uint64_t address) { return (address & ~(PTW_PAGE - 1)) + PTW_PAGE; }

/* Tracked and not wild: may be read once it is open. */
static bool readable(uint64_t address)
{
	uint32_t page = ptw_page_of(address);
	return page != PTW_PAGE_NONE && ptw_page_states[page] != PTW_CLOSED;
}

void ptw_touch_string(const char *string, const struct ptw_frame *frame)
{
	uint64_t address = (uint64_t)string;
	if (!string)
		return;
	for (uint64_t length = 0; length < LONGEST;) {
		uint64_t end = page_end(address);
		ptw_touch_slow(address, 1, false, frame);
		if (!readable(address))
			return; /* not tracked: the kernel reads it by itself */
		for (; address < end; address++, length++)
			if (*(const char *)address == '\0')
				return;
	}
}

void ptw_touch_strings(char *const *list, const struct ptw_frame *frame)
{
	if (!list)
		return;
	for (uint64_t i = 0; i < LONGEST; i++) {
		ptw_touch(&list[i], sizeof *list, false, frame);
		if (!list[i])
			return;
		ptw_touch_string(list[i], frame);
	}
}

void ptw_touch_vectors(const struct iovec *vector, uint64_t count, bool write, const struct ptw_frame *frame)
{
	if (!vector || count > VECTORS)
		return;
	ptw_touch(vector, count * sizeof *vector, false, frame);
	for (uint64_t i = 0; i < count; i++)
		ptw_touch(vector[i].iov_base, vector[i].iov_len, write, frame);
}

void ptw_touch_message(const struct msghdr *message, bool write, const struct ptw_frame *frame)
{
	if (!message)
		return;
	ptw_touch(message, sizeof *message, write, frame);
	ptw_touch(message->msg_name, message->msg_namelen, write, frame);
	ptw_touch_vectors(message->msg_iov, message->msg_iovlen, write, frame);
	ptw_touch(message->msg_control, message->msg_controllen, write, frame);
}

void ptw_touch_messages(const struct mmsghdr *list, unsigned count, bool write, const struct ptw_frame *frame)
{
	if (!list || count > VECTORS)
		return;
	ptw_touch(list, count * sizeof *list, true, frame);
	for (unsigned i = 0; i < count; i++)
		ptw_touch_message(&list[i].msg_hdr, write, frame);
}
