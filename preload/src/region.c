/* SPDX-License-Identifier: MIT */
/* The shared memory; region.h says what is guaranteed. */
#define _GNU_SOURCE
#include "region.h"

#include "handshake.h"
#include "kept_files.h"
#include "slots.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static int memfd = -1;
static bool ready;

static bool failed(long result) { return result < 0 && result >= -4095; }

struct part {
	uint64_t at, size, offset;
	bool shared;
};

static const struct part plan[] = {
	{PTW_META, PTW_META_SIZE, PTW_META_OFFSET, true},
	{PTW_OWN, PTW_OWN_SIZE, 0, false},
	{PTW_REGION, PTW_REGION_SIZE, 0, true},
	{PTW_ALIAS, PTW_ALIAS_SIZE, 0, true},
};

static long map(const struct part *part, int fd, int how)
{
	int flags = part->shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
	long result = PTW_SYS(SYS_mmap, part->at, part->size, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE | how,
			      part->shared ? fd : -1, part->offset);
	/* a core dump would read, and so allocate, every page of it */
	PTW_SYS(SYS_madvise, part->at, part->size, MADV_DONTDUMP, 0, 0, 0);
	if (!part->shared) /* a new thread's process begins with nothing of its creator's */
		PTW_SYS(SYS_madvise, part->at, part->size, MADV_WIPEONFORK, 0, 0, 0);
	return result;
}

/* The program's limit of a file's size is not for our memory. For a moment it is as high as we may set it. */
static void lift(struct rlimit *before)
{
	struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
	PTW_SYS(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, before, 0, 0);
	if (before->rlim_cur >= PTW_MEMFD_SIZE || PTW_SYS(SYS_prlimit64, 0, RLIMIT_FSIZE, &none, 0, 0, 0) == 0)
		return;
	none.rlim_cur = none.rlim_max = before->rlim_max;
	PTW_SYS(SYS_prlimit64, 0, RLIMIT_FSIZE, &none, 0, 0, 0);
}

static void put_back(const struct rlimit *before) { PTW_SYS(SYS_prlimit64, 0, RLIMIT_FSIZE, before, 0, 0, 0); }

static int make_memfd(void)
{
	struct rlimit limit = {0, 0};
	long fd = PTW_SYS(SYS_memfd_create, "ptweave-memory", MFD_CLOEXEC, 0, 0, 0, 0), high;
	if (fd < 0)
		return (int)fd;
	PTW_SYS(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, &limit, 0, 0);
	high = PTW_SYS(SYS_fcntl, fd, F_DUPFD_CLOEXEC,
		       limit.rlim_cur > PTW_DESCRIPTOR_BASE + 32 ? PTW_DESCRIPTOR_BASE : 16, 0, 0, 0);
	if (high >= 0) {
		ptw_close((int)fd);
		fd = high;
	}
	PTW_SYS(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, &limit, 0, 0);
	if (limit.rlim_cur < PTW_MEMFD_SIZE) { /* ftruncate would raise SIGXFSZ */
		ptw_close((int)fd);
		return -EFBIG;
	}
	long grown = PTW_SYS(SYS_ftruncate, fd, PTW_MEMFD_SIZE, 0, 0, 0, 0);
	if (grown < 0) {
		ptw_close((int)fd);
		return (int)grown;
	}
	return (int)fd;
}

int ptw_region_init(void)
{
	if (ready)
		return 0;
	struct rlimit before;
	lift(&before);
	int fd = make_memfd();
	put_back(&before);
	if (fd < 0)
		return fd;
	for (unsigned i = 0; i < sizeof plan / sizeof *plan; i++) {
		long result = map(&plan[i], fd, MAP_FIXED_NOREPLACE);
		if (result == (long)plan[i].at)
			continue;
		if (!failed(result)) { /* a kernel that took the address for a hint */
			PTW_SYS(SYS_munmap, result, plan[i].size, 0, 0, 0, 0);
			result = -EEXIST;
		}
		while (i-- > 0)
			PTW_SYS(SYS_munmap, plan[i].at, plan[i].size, 0, 0, 0, 0);
		ptw_close(fd);
		return (int)result;
	}
	ptw_kept_add(fd);
	memfd = fd;
	ready = true;
	return 0;
}

int ptw_region_fd(void) { return memfd; }

int ptw_region_adopt(uint64_t start, uint64_t end, uint64_t offset)
{
	static const char zeros[PTW_PAGE];
	/* what is zeros is so there, and costs nothing */
	for (uint64_t at = start; at < end; at += PTW_PAGE)
		if (memcmp((const void *)at, zeros, PTW_PAGE) != 0)
			memcpy((void *)(PTW_ALIAS + offset + (at - start)), (const void *)at, PTW_PAGE);
	long result = PTW_SYS(SYS_mmap, start, end - start, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memfd,
			      offset);
	return result == (long)start ? 0 : failed(result) ? (int)result : -EEXIST;
}

/* --- a copy for a fork child --- */

/* What the child begins anew: object versions. */
static bool forgotten(uint64_t offset)
{
	return offset - PTW_META_OFFSET - (PTW_META_OBJECTS - PTW_META) < (16ull << 20);
}

static const void *view_of(uint64_t offset)
{
	return (const void *)(offset < PTW_META_OFFSET ? PTW_ALIAS + offset : PTW_META + (offset - PTW_META_OFFSET));
}

/* Piece by piece, so that a piece is within one view. */
static long copy_extent(int to, uint64_t start, uint64_t end)
{
	while (start < end) {
		uint64_t size = end - start > (1 << 20) ? 1 << 20 : end - start;
		if (start < PTW_META_OFFSET && start + size > PTW_META_OFFSET)
			size = PTW_META_OFFSET - start;
		long done = forgotten(start) ? (long)size
					     : PTW_SYS(SYS_pwrite64, to, view_of(start), size, start, 0, 0);
		if (done == -EINTR)
			continue;
		if (done <= 0)
			return done ? done : -EIO;
		start += (uint64_t)done;
	}
	return 0;
}

static int copy_all(void)
{
	int to = make_memfd();
	if (to < 0)
		return to;
	/* the offset is shared with other processes: seek with absolute positions only, and ours are the only seeks here */
	for (long at = 0;;) {
		long start = PTW_SYS(SYS_lseek, memfd, at, SEEK_DATA, 0, 0, 0);
		if (start == -ENXIO)
			return to;
		long end = start < 0 ? start : PTW_SYS(SYS_lseek, memfd, start, SEEK_HOLE, 0, 0, 0);
		long error = end < 0 ? end : copy_extent(to, (uint64_t)start, (uint64_t)end);
		if (error) {
			ptw_close(to);
			return (int)error;
		}
		at = end;
	}
}

int ptw_region_copy(void)
{
	struct rlimit before;
	lift(&before);
	int fd = copy_all();
	put_back(&before);
	return fd;
}

int ptw_region_replace(int fd)
{
	int before = memfd;
	ptw_close(before);
	memfd = fd;
	for (unsigned i = 0; i < sizeof plan / sizeof *plan; i++)
		if (map(&plan[i], fd, MAP_FIXED) != (long)plan[i].at)
			return -ENOMEM;
	ptw_kept_drop(before);
	ptw_kept_add(fd);
	return 0;
}

int ptw_region_remap(uint64_t start, uint64_t end, uint64_t offset)
{
	long result = PTW_SYS(SYS_mmap, start, end - start, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memfd, offset);
	return result == (long)start ? 0 : -ENOMEM;
}
