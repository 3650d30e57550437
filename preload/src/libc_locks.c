/* SPDX-License-Identifier: MIT */
/*
 * Two functions wait and wake; each passes its futex operation as a constant: `mov $0x80, %esi` and `mov $0x81, %esi`.
 * The bit FUTEX_PRIVATE_FLAG is taken out of those constants, in this process's copy of the page. No instruction
 * changes its length or its target, so recorded control flow decodes from the file as ever.
 */
#define _GNU_SOURCE
#include "libc_locks.h"

#include "layout.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { WINDOW = 96, MOV_ESI = 0xbe };

static uint8_t *constant(const char *function, uint8_t operation)
{
	uint8_t *code = dlsym(RTLD_DEFAULT, function), wanted[5] = {MOV_ESI, operation, 0, 0, 0};
	for (unsigned i = 0; code && i + sizeof wanted <= WINDOW; i++)
		if (memcmp(code + i, wanted, sizeof wanted) == 0)
			return code + i + 1;
	return NULL;
}

static int patch(uint8_t *at)
{
	uint64_t page = (uint64_t)at & ~(PTW_PAGE - 1);
	long error = PTW_SYS(SYS_mprotect, page, PTW_PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, 0, 0, 0);
	if (error)
		return (int)error;
	*at &= (uint8_t)~FUTEX_PRIVATE_FLAG;
	return (int)PTW_SYS(SYS_mprotect, page, PTW_PAGE, PROT_READ | PROT_EXEC, 0, 0, 0);
}

int ptw_libc_locks_share(void)
{
	uint8_t *wait = constant("__lll_lock_wait_private", FUTEX_WAIT | FUTEX_PRIVATE_FLAG);
	uint8_t *wake = constant("__lll_lock_wake_private", FUTEX_WAKE | FUTEX_PRIVATE_FLAG);
	if (!wait || !wake)
		return -ENOSYS;
	int error = patch(wait);
	return error ? error : patch(wake);
}
