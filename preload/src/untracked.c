/* SPDX-License-Identifier: MIT */
/* Shared memory that is not tracked; untracked.h says what is guaranteed. */
#define _GNU_SOURCE
#include "untracked.h"

#include "mappings.h"
#include "notice.h"
#include "region.h"
#include "segments.h"
#include "shared_lock.h"
#include "slots.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* What is mapped in this process. */
static bool here[PTW_UNTRACKED];

void ptw_untracked_tell(int error)
{
	if (error)
		ptw_notice(PTW_NOTICE_LIMIT, NULL, "no room for what a thread has mapped: other threads do not have it");
}

/* What is mapped there is shared, or, with `fresh`, zeros are. Under the lock. */
static int share_as(uint64_t start, uint64_t end, bool fresh)
{
	struct ptw_segments *all = ptw_segment_table;
	uint64_t offset = PTW_LIBC_OFFSET + all->libc_used;
	unsigned i = 0;
	while (i < PTW_UNTRACKED && all->untracked[i].start)
		i++;
	if (i == PTW_UNTRACKED || all->libc_used + (end - start) > PTW_LIBC_SIZE)
		return -ENOSPC;
	int error = fresh ? ptw_region_remap(start, end, offset) : ptw_region_adopt(start, end, offset);
	if (error)
		return error;
	here[i] = true;
	all->untracked[i].end = end;
	all->untracked[i].offset = offset;
	__atomic_store_n(&all->untracked[i].start, start, __ATOMIC_RELEASE); /* others look at it any time */
	__atomic_store_n(&all->libc_used, all->libc_used + (end - start), __ATOMIC_RELEASE);
	return 0;
}

int ptw_untracked_share(uint64_t start, uint64_t end)
{
	uint64_t mask;
	ptw_lock_masked(&ptw_shared->untracked_lock, &mask);
	int error = share_as(start, end, false);
	ptw_unlock_masked(&ptw_shared->untracked_lock, &mask);
	return error;
}

int ptw_untracked_remap(void)
{
	const struct ptw_segments *all = ptw_segment_table;
	int error = 0;
	for (unsigned i = 0; i < PTW_UNTRACKED && all->untracked[i].start && !error; i++)
		error = ptw_region_remap(all->untracked[i].start, all->untracked[i].end, all->untracked[i].offset);
	return error;
}

bool ptw_untracked_has(uint64_t address)
{
	const struct ptw_segments *all = ptw_segment_table;
	for (unsigned i = 0; i < PTW_UNTRACKED && __atomic_load_n(&all->untracked[i].start, __ATOMIC_ACQUIRE); i++)
		if (address - all->untracked[i].start < all->untracked[i].end - all->untracked[i].start)
			return true;
	return false;
}

static bool admit(unsigned i)
{
	const struct ptw_segments *all = ptw_segment_table;
	here[i] = ptw_region_remap(all->untracked[i].start, all->untracked[i].end, all->untracked[i].offset) == 0;
	return here[i];
}

bool ptw_untracked_admit(uint64_t address)
{
	const struct ptw_segments *all = ptw_segment_table;
	for (unsigned i = 0; i < PTW_UNTRACKED && __atomic_load_n(&all->untracked[i].start, __ATOMIC_ACQUIRE); i++)
		if (!here[i] && address - all->untracked[i].start < all->untracked[i].end - all->untracked[i].start)
			return admit(i);
	return false;
}

void ptw_untracked_catch_up(void)
{
	const struct ptw_segments *all = ptw_segment_table;
	for (unsigned i = 0; i < PTW_UNTRACKED && __atomic_load_n(&all->untracked[i].start, __ATOMIC_ACQUIRE); i++)
		if (!here[i])
			admit(i);
}

/* --- what the program maps at addresses of its own --- */

struct piece {
	uint64_t start, end;
	uint64_t offset; /* 0: it is not shared */
};

/* The piece of [start, end) that begins at `start` and is shared as a whole, or not at all. */
static struct piece piece_at(uint64_t start, uint64_t end)
{
	const struct ptw_segments *all = ptw_segment_table;
	struct piece ret = {start, end, 0};
	for (unsigned i = 0; i < PTW_UNTRACKED && __atomic_load_n(&all->untracked[i].start, __ATOMIC_ACQUIRE); i++) {
		uint64_t from = all->untracked[i].start, to = all->untracked[i].end;
		if (start - from < to - from)
			return (struct piece){start, to < end ? to : end, all->untracked[i].offset + (start - from)};
		if (from > start && from < ret.end)
			ret.end = from;
	}
	return ret;
}

static void empty(uint64_t start, uint64_t end)
{
	for (struct piece piece; start < end; start = piece.end) {
		piece = piece_at(start, end);
		if (piece.offset)
			PTW_SYS(SYS_madvise, PTW_ALIAS + piece.offset, piece.end - piece.start, MADV_REMOVE, 0, 0, 0);
	}
}

void ptw_untracked_read(uint64_t start, char *to, uint64_t size)
{
	uint64_t end = start + size;
	for (struct piece piece; start < end; to += piece.end - start, start = piece.end) {
		piece = piece_at(start, end);
		if (piece.offset)
			memcpy(to, (const char *)(PTW_ALIAS + piece.offset), piece.end - piece.start);
	}
}

static int share_pieces(uint64_t start, uint64_t end, bool fresh)
{
	int error = 0;
	for (struct piece piece; start < end && !error; start = piece.end) {
		piece = piece_at(start, end);
		error = piece.offset ? ptw_region_remap(piece.start, piece.end, piece.offset)
				     : share_as(piece.start, piece.end, fresh);
	}
	return error;
}

void ptw_untracked_empty(uint64_t start, uint64_t end)
{
	uint64_t mask;
	ptw_lock_masked(&ptw_shared->untracked_lock, &mask);
	empty(start, end);
	ptw_unlock_masked(&ptw_shared->untracked_lock, &mask);
}

/* Has this process anything else where others have what is shared? */
static bool replaced;

void ptw_untracked_replaced(uint64_t start, uint64_t end)
{
	replaced = true;
	ptw_untracked_empty(start, end);
}

void ptw_untracked_share_fresh(uint64_t start, uint64_t end)
{
	uint64_t mask;
	ptw_lock_masked(&ptw_shared->untracked_lock, &mask);
	empty(start, end);
	ptw_untracked_tell(share_pieces(start, end, true));
	ptw_unlock_masked(&ptw_shared->untracked_lock, &mask);
}

/* What is there that this process alone has, and that fits. [end, end): nothing. */
static struct piece own_piece(uint64_t start, uint64_t end, bool (*fits)(const struct ptw_mapping_line *line))
{
	struct ptw_mappings all;
	struct ptw_mapping_line line;
	struct piece ret = {end, end, 0};
	if (!ptw_mappings_init(&all, 0))
		return ret;
	while (ret.start == end && ptw_mappings_next(&all, &line))
		if (line.start < end && line.end > start && !line.path[0] && fits(&line))
			ret = (struct piece){line.start > start ? line.start : start, line.end < end ? line.end : end, 0};
	ptw_mappings_deinit(&all);
	return ret;
}

void ptw_untracked_share_own(uint64_t start, uint64_t end)
{
	struct piece first = piece_at(start, end);
	uint64_t mask;
	if (first.offset && first.end >= end && !replaced) /* a collector's barriers come here often */
		return;
	ptw_lock_masked(&ptw_shared->untracked_lock, &mask);
	for (struct piece piece; (piece = own_piece(start, end, ptw_mappings_is_data)).start < end; start = piece.end)
		ptw_untracked_tell(share_pieces(piece.start, piece.end, false));
	ptw_unlock_masked(&ptw_shared->untracked_lock, &mask);
}

static bool is_reserved(const struct ptw_mapping_line *line) { return !line->shared && !line->protection; }

bool ptw_untracked_again(uint64_t address)
{
	uint64_t page = ptw_page_down(address);
	struct piece piece = piece_at(page, page + PTW_PAGE);
	return piece.offset && own_piece(page, page + PTW_PAGE, is_reserved).start == page &&
	       ptw_region_remap(page, page + PTW_PAGE, piece.offset) == 0;
}
