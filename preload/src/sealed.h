/* SPDX-License-Identifier: MIT */
/*
 * Memory files that two processes map: as large as they will ever be, so that neither can take pages from under the
 * other (SIGBUS). Signal-safe; raises no SIGXFSZ.
 */
#ifndef PTW_SEALED_H
#define PTW_SEALED_H

#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>

/* Give a memfd (MFD_ALLOW_SEALING) its size, and keep it. Returns 0, -EFBIG beyond RLIMIT_FSIZE, or negative errno. */
static inline int ptw_grow_sealed(int fd, uint64_t bytes)
{
	struct rlimit limit = {0, 0};
	long result = PTW_SYS(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, &limit, 0, 0);
	if (result == 0 && limit.rlim_cur < bytes)
		return -EFBIG; /* ftruncate would raise SIGXFSZ */
	result = PTW_SYS(SYS_ftruncate, fd, bytes, 0, 0, 0, 0);
	if (result == 0)
		result = PTW_SYS(SYS_fcntl, fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW, 0, 0, 0);
	return (int)result;
}

#endif
