/* SPDX-License-Identifier: MIT */
/*
 * Low-level locks and pthread_once: each waits in one place and wakes in one, and passes its futex operation as a
 * constant: `mov $0x80, %esi` and `mov $0x81, %esi`. The bit FUTEX_PRIVATE_FLAG is taken out of those constants, in this
 * process's copy of the page. No instruction changes its length or its target, so recorded control flow decodes from
 * the file as ever. (Who leaves the C library's own initialisation by cancellation wakes others elsewhere, and does not
 * wake other processes.)
 *
 * Read-write locks say themselves whether they are shared. The C library's own have no names; they are found in the code
 * of functions that take them: a call of pthread_rwlock_rdlock or _wrlock, and before it the address of what it locks.
 */
#define _GNU_SOURCE
#include "libc_locks.h"

#include "layout.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

enum { MOV_ESI = 0xbe, CALL = 0xe8, JUMP = 0xe9, LEA = 0x8d };

/* --- constants --- */

static uint8_t *constant(uint8_t *code, unsigned window, uint8_t operation)
{
	uint8_t wanted[5] = {MOV_ESI, operation, 0, 0, 0};
	for (unsigned i = 0; code && i + sizeof wanted <= window; i++)
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

/* Both or none. */
static int patch_both(uint8_t *wait, uint8_t *wake)
{
	if (!wait || !wake)
		return -ENOSYS;
	int error = patch(wait);
	return error ? error : patch(wake);
}

int ptw_libc_locks_share(void)
{
	enum { WINDOW = 96 };
	return patch_both(constant(dlsym(RTLD_DEFAULT, "__lll_lock_wait_private"), WINDOW, FUTEX_WAIT | FUTEX_PRIVATE_FLAG),
			  constant(dlsym(RTLD_DEFAULT, "__lll_lock_wake_private"), WINDOW, FUTEX_WAKE | FUTEX_PRIVATE_FLAG));
}

/* --- code --- */

static uint8_t *relative(uint8_t *displacement)
{
	int32_t distance;
	memcpy(&distance, displacement, sizeof distance);
	return displacement + sizeof distance + distance;
}

/* Where a short function goes on: it ends with a jump. NULL: not found. */
static uint8_t *goes_on(uint8_t *code)
{
	enum { SHORT = 40 };
	for (unsigned i = 0; code && i < SHORT; i++)
		if (code[i] == JUMP)
			return relative(code + i + 1);
	return NULL;
}

static bool share_once(void *libc)
{
	enum { WINDOW = 288 };
	uint8_t *slow = goes_on(dlsym(libc, "pthread_once"));
	return patch_both(constant(slow, WINDOW, FUTEX_WAIT | FUTEX_PRIVATE_FLAG),
			  constant(slow, WINDOW, FUTEX_WAKE | FUTEX_PRIVATE_FLAG)) == 0;
}

/* --- read-write locks --- */

struct data {
	uint64_t base, start, end; /* start: 0 not found */
};

/* The writable data of the library that is loaded at a base. */
static int find_data(struct dl_phdr_info *info, size_t size, void *ret)
{
	struct data *data = ret;
	(void)size;
	if (info->dlpi_addr != data->base)
		return 0;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		if (part->p_type != PT_LOAD || !(part->p_flags & PF_W))
			continue;
		data->start = data->base + part->p_vaddr;
		data->end = data->start + part->p_memsz;
	}
	return 1;
}

/* What the last `lea` before a call that has an address of the data has: a lock nobody holds or has changed. */
static pthread_rwlock_t *taken_by(const uint8_t *from, uint8_t *call, const struct data *data)
{
	enum { WINDOW = 64, LENGTH = 7, RIP_RELATIVE = 5, REGISTER = 7 << 3 };
	static const pthread_rwlock_t fresh = PTHREAD_RWLOCK_INITIALIZER;
	for (uint8_t *at = call - LENGTH; at >= from && at >= call - WINDOW; at--) {
		if ((at[0] & 0xf8) != 0x48 || at[1] != LEA || (at[2] & ~REGISTER) != RIP_RELATIVE)
			continue;
		uint64_t place = (uint64_t)relative(at + 3);
		if (place < data->start || place > data->end - sizeof fresh || place % 8)
			continue;
		return memcmp((void *)place, &fresh, sizeof fresh) == 0 ? (pthread_rwlock_t *)place : NULL;
	}
	return NULL;
}

struct locks {
	pthread_rwlock_t *lock[8];
	unsigned count;
};

static void add(struct locks *locks, pthread_rwlock_t *lock)
{
	for (unsigned i = 0; i < locks->count; i++)
		if (locks->lock[i] == lock)
			return;
	if (lock && locks->count < sizeof locks->lock / sizeof *locks->lock)
		locks->lock[locks->count++] = lock;
}

/* Those that the beginning of a function takes. */
static void find_locks(uint8_t *code, unsigned window, const uint8_t *taker[2], const struct data *data, struct locks *ret)
{
	for (unsigned i = 0; code && i + 5 <= window; i++)
		if (code[i] == CALL && (relative(code + i + 1) == taker[0] || relative(code + i + 1) == taker[1]))
			add(ret, taken_by(code, code + i, data));
}

static bool share_locales(void *libc)
{
	enum { DOMAIN = 128, TEXT = 512, LOCKS = 3 /* of locales, domains and translations */ };
	const uint8_t *taker[] = {dlsym(libc, "pthread_rwlock_rdlock"), dlsym(libc, "pthread_rwlock_wrlock")};
	struct data data = {((struct link_map *)libc)->l_addr, 0, 0};
	struct locks locks = {{NULL}, 0};
	dl_iterate_phdr(find_data, &data);
	if (!data.start || !taker[0] || !taker[1])
		return false;
	find_locks(dlsym(libc, "textdomain"), DOMAIN, taker, &data, &locks);
	find_locks(goes_on(dlsym(libc, "dcgettext")), TEXT, taker, &data, &locks); /* takes all three */
	for (unsigned i = 0; i < locks.count; i++)
		locks.lock[i]->__data.__shared = 1;
	return locks.count == LOCKS;
}

bool ptw_libc_others_share(void)
{
	void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
	if (!libc)
		return false;
	bool once = share_once(libc), locales = share_locales(libc);
	dlclose(libc);
	return once && locales;
}
