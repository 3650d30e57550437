/* SPDX-License-Identifier: MIT */
/* The shared memory; region.h says what is guaranteed. */
#define _GNU_SOURCE
#include "region.h"

#include "handshake.h"
#include "slots.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

static int memfd = -1;
static bool ready;

static bool failed(long result) { return result < 0 && result >= -4095; }

static long map(uint64_t at, uint64_t size, int flags, int fd)
{
	return PTW_SYS(SYS_mmap, at, size, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE | MAP_FIXED_NOREPLACE, fd, 0);
}

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
	static const struct { uint64_t at, size; int flags; bool file; } plan[] = {
		{PTW_META, PTW_META_SIZE, MAP_SHARED | MAP_ANONYMOUS, false},
		{PTW_OWN, PTW_OWN_SIZE, MAP_PRIVATE | MAP_ANONYMOUS, false},
		{PTW_REGION, PTW_REGION_SIZE, MAP_SHARED, true},
		{PTW_ALIAS, PTW_MEMFD_SIZE, MAP_SHARED, true},
	};
	if (ready)
		return 0;
	int fd = make_memfd();
	if (fd < 0)
		return fd;
	for (unsigned i = 0; i < sizeof plan / sizeof *plan; i++) {
		long result = map(plan[i].at, plan[i].size, plan[i].flags, plan[i].file ? fd : -1);
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
	memfd = fd;
	ready = true;
	return 0;
}

int ptw_region_fd(void) { return memfd; }

int ptw_region_adopt(uint64_t start, uint64_t end, uint64_t offset)
{
	memcpy((void *)(PTW_ALIAS + offset), (const void *)start, end - start);
	long result = PTW_SYS(SYS_mmap, start, end - start, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memfd,
			      offset);
	return result == (long)start ? 0 : failed(result) ? (int)result : -EEXIST;
}
