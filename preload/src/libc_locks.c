/* SPDX-License-Identifier: MIT */
/*
 * The code that waits and wakes says that the futex is private: low-level locks and pthread_once by a constant,
 * `mov $0x80, %esi` and `mov $0x81, %esi`, of which the bit is taken out; read-write locks by what the lock says,
 *
 *	mov 0x1c(%rbx), %ecx;  test %ecx, %ecx;  setne %sil;  shl $7, %esi
 *
 * where setne becomes setns, which is true of every flag. All in this process's copy of the page. No instruction changes
 * its length or its target, so recorded control flow decodes from the file as ever. The program's own locks do not come
 * here: its calls are ours.
 *
 * Not shared: who leaves the C library's own initialisation by cancellation wakes others elsewhere.
 */
#define _GNU_SOURCE
#include "libc_locks.h"

#include "layout.h"
#include "next.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

enum { MOV_ESI = 0xbe, JUMP = 0xe9, SETNE = 0x95, SETNS = 0x99 };

struct code {
	uint8_t *start; /* NULL: there is none */
	size_t size;
};

/* Not executable meanwhile, so that an engine forgets what it translated. */
static int put(uint8_t *at, uint8_t byte)
{
	uint64_t page = (uint64_t)at & ~(PTW_PAGE - 1);
	long error = PTW_SYS(SYS_mprotect, page, PTW_PAGE, PROT_READ | PROT_WRITE, 0, 0, 0);
	if (error)
		return (int)error;
	*at = byte;
	return (int)PTW_SYS(SYS_mprotect, page, PTW_PAGE, PROT_READ | PROT_EXEC, 0, 0, 0);
}

/* --- constants --- */

static uint8_t *constant(struct code code, uint8_t operation)
{
	uint8_t wanted[5] = {MOV_ESI, operation, 0, 0, 0};
	for (size_t i = 0; code.start && i + sizeof wanted <= code.size; i++)
		if (memcmp(code.start + i, wanted, sizeof wanted) == 0)
			return code.start + i + 1;
	return NULL;
}

static int share_constants(struct code waits, struct code wakes)
{
	uint8_t *wait = constant(waits, FUTEX_WAIT | FUTEX_PRIVATE_FLAG);
	uint8_t *wake = constant(wakes, FUTEX_WAKE | FUTEX_PRIVATE_FLAG);
	if (!wait || !wake)
		return -ENOSYS;
	int error = put(wait, FUTEX_WAIT);
	return error ? error : put(wake, FUTEX_WAKE);
}

static int share_locks(void *libc)
{
	enum { WINDOW = 96 };
	return share_constants((struct code){dlsym(libc, "__lll_lock_wait_private"), WINDOW},
			       (struct code){dlsym(libc, "__lll_lock_wake_private"), WINDOW});
}

/* Not by dlsym, which is this library's own and finds this library's functions. */
static struct code code_of(void *libc, const char *name)
{
	struct code ret;
	ret.start = ptw_next_in(libc, name, ptw_next_hash(name), &ret.size); /* a handle is the object's map */
	return ret;
}

/* A short function that ends with a jump to where it waits and wakes. */
static int share_once(void *libc)
{
	enum { SHORT = 40, WINDOW = 288 };
	uint8_t *once = code_of(libc, "pthread_once").start;
	struct code slow = {NULL, WINDOW};
	for (unsigned i = 0; once && i < SHORT && !slow.start; i++) {
		int32_t distance;
		memcpy(&distance, once + i + 1, sizeof distance);
		if (once[i] == JUMP)
			slow.start = once + i + 1 + sizeof distance + distance;
	}
	return share_constants(slow, slow);
}

/* --- read-write locks --- */

/* `mov __shared(%any), %any` */
static bool loads_flag(const uint8_t *at)
{
	return at[0] == 0x8b && (at[1] & 0xc0) == 0x40 && at[2] == offsetof(pthread_rwlock_t, __data.__shared);
}

/* `setne` of a register that a shift by 7 follows: the byte to change, or NULL. */
static uint8_t *makes_private(uint8_t *at, const uint8_t *end)
{
	enum { NEAR = 12, REX_B = 0x41, GROUP = 0xc1, LEFT = 0xe0 };
	if (at[0] != 0x0f || at[1] != SETNE || (at[2] & 0xf8) != 0xc0)
		return NULL;
	bool high = at[-1] == REX_B;
	for (const uint8_t *to = at + 3; to < at + 3 + NEAR && to + 3 <= end; to++)
		if (to[0] == GROUP && to[1] == (LEFT | (at[2] & 7)) && to[2] == 7 && (to[-1] == REX_B) == high)
			return at + 1;
	return NULL;
}

static int share_flags(struct code code)
{
	enum { MOST = 16 };
	uint8_t *found[MOST];
	unsigned flags = 0, count = 0;
	for (size_t i = 1; code.start && i + 3 <= code.size; i++) {
		uint8_t *at = makes_private(code.start + i, code.start + code.size);
		flags += loads_flag(code.start + i);
		if (at && count < MOST)
			found[count++] = at;
	}
	if (count == 0 || count != flags)
		return -ENOSYS; /* not the code we know: what is not understood is not changed */
	int error = 0;
	for (unsigned i = 0; i < count && !error; i++)
		error = put(found[i], SETNS);
	return error;
}

static int share_rwlocks(void *libc)
{
	static const char *const names[] = {"pthread_rwlock_rdlock", "pthread_rwlock_wrlock", "pthread_rwlock_unlock"};
	int error = 0;
	for (unsigned i = 0; i < sizeof names / sizeof *names && !error; i++)
		error = share_flags(code_of(libc, names[i]));
	return error;
}

/* --- all --- */

int ptw_libc_locks_share(bool *ret_all)
{
	void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
	if (!libc)
		return -ENOSYS;
	int error = share_locks(libc), once = share_once(libc), rwlocks = share_rwlocks(libc);
	*ret_all = !once && !rwlocks;
	dlclose(libc);
	return error;
}
