/* SPDX-License-Identifier: MIT */
/*
 * What is heard of accesses: the callbacks that -fsanitize=thread compiles into every one, the C library's functions
 * that access memory in the program's name, and system calls that do.
 *
 * Not heard: what libc does on its own account (stdio, the allocator), and the stack's own traffic (spilled registers,
 * return addresses).
 */
#define _GNU_SOURCE
#include "core.h"

#include <malloc.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ACCESS(size)                                                                                \
	EXPORT void __tsan_read##size(void *at) { core_note(at, size, READ); }                          \
	EXPORT void __tsan_write##size(void *at) { core_note(at, size, WRITE); }                          \
	EXPORT void __tsan_volatile_read##size(void *at) { core_note(at, size, READ); }                 \
	EXPORT void __tsan_volatile_write##size(void *at) { core_note(at, size, WRITE); }                 \
	EXPORT void __tsan_unaligned_read##size(void *at) { core_note(at, size, READ); }                \
	EXPORT void __tsan_unaligned_write##size(void *at) { core_note(at, size, WRITE); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

EXPORT void __tsan_read_range(void *at, size_t size) { core_note(at, size, READ); }
EXPORT void __tsan_write_range(void *at, size_t size) { core_note(at, size, WRITE); }
EXPORT void __tsan_vptr_update(void **at, void *value) { core_note(at, sizeof value, WRITE); }
EXPORT void __tsan_vptr_read(void **at) { core_note(at, sizeof *at, READ); }
EXPORT void __tsan_func_entry(void *caller) { (void)caller; }
EXPORT void __tsan_func_exit(void) {}
EXPORT void __tsan_init(void) {}

#define BOTH(at) (core_note(at, sizeof *(at), READ), core_note(at, sizeof *(at), WRITE))

#define FETCH(bits, name)                                                                                      \
	EXPORT uint##bits##_t __tsan_atomic##bits##_fetch_##name(volatile uint##bits##_t *at,                  \
								 uint##bits##_t value, int order)              \
	{                                                                                                      \
		(void)order;                                                                                   \
		BOTH(at);                                                                                      \
		return __atomic_fetch_##name(at, value, __ATOMIC_SEQ_CST);                                     \
	}

#define ATOMIC(bits)                                                                                           \
	EXPORT uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *at, int order)         \
	{                                                                                                      \
		(void)order;                                                                                   \
		core_note(at, sizeof *at, READ);                                                                   \
		return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                  \
	}                                                                                                      \
	EXPORT void __tsan_atomic##bits##_store(volatile uint##bits##_t *at, uint##bits##_t value, int order)  \
	{                                                                                                      \
		(void)order;                                                                                   \
		core_note(at, sizeof *at, WRITE);                                                                    \
		__atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                 \
	}                                                                                                      \
	EXPORT uint##bits##_t __tsan_atomic##bits##_exchange(volatile uint##bits##_t *at,                      \
							     uint##bits##_t value, int order)                  \
	{                                                                                                      \
		(void)order;                                                                                   \
		BOTH(at);                                                                                      \
		return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                                       \
	}                                                                                                      \
	EXPORT int __tsan_atomic##bits##_compare_exchange_strong(volatile uint##bits##_t *at,                  \
								 uint##bits##_t *expected,                     \
								 uint##bits##_t value, int order, int failed)  \
	{                                                                                                      \
		(void)order, (void)failed;                                                                     \
		BOTH(at);                                                                                      \
		return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST,               \
						   __ATOMIC_SEQ_CST);                                          \
	}                                                                                                      \
	EXPORT int __tsan_atomic##bits##_compare_exchange_weak(volatile uint##bits##_t *at,                    \
							       uint##bits##_t *expected, uint##bits##_t value, \
							       int order, int failed)                          \
	{                                                                                                      \
		return __tsan_atomic##bits##_compare_exchange_strong(at, expected, value, order, failed);      \
	}                                                                                                      \
	FETCH(bits, add)                                                                                       \
	FETCH(bits, sub)                                                                                       \
	FETCH(bits, and)                                                                                       \
	FETCH(bits, or)                                                                                        \
	FETCH(bits, xor)                                                                                       \
	FETCH(bits, nand)
ATOMIC(8)
ATOMIC(16)
ATOMIC(32)
ATOMIC(64)

EXPORT void __tsan_atomic_thread_fence(int order) { (void)order, __atomic_thread_fence(__ATOMIC_SEQ_CST); }
EXPORT void __tsan_atomic_signal_fence(int order) { (void)order, __atomic_signal_fence(__ATOMIC_SEQ_CST); }

/* --- the C library's accesses in the program's name -------------------------------------------------------------- */

WRAP(void *, memcpy, (void *to, const void *from, size_t size))
{
	core_note(from, size, READ), core_note(to, size, WRITE);
	return memcpy(to, from, size);
}

WRAP(void *, memmove, (void *to, const void *from, size_t size))
{
	core_note(from, size, READ), core_note(to, size, WRITE);
	return memmove(to, from, size);
}

WRAP(void *, memset, (void *to, int value, size_t size))
{
	core_note(to, size, WRITE);
	return memset(to, value, size);
}

/* Up to the first difference: what must be read. */
WRAP(int, memcmp, (const void *left, const void *right, size_t size))
{
	const unsigned char *a = left, *b = right;
	size_t same = 0;
	while (same < size && a[same] == b[same])
		same++;
	same += same < size;
	core_note(left, same, READ), core_note(right, same, READ);
	return memcmp(left, right, size);
}

WRAP(void *, memchr, (const void *in, int value, size_t size))
{
	void *found = memchr(in, value, size);
	core_note(in, found ? (size_t)((char *)found - (const char *)in) + 1 : size, READ);
	return found;
}

WRAP(size_t, strlen, (const char *text))
{
	size_t length = strlen(text);
	core_note(text, length + 1, READ);
	return length;
}

WRAP(int, strcmp, (const char *left, const char *right))
{
	size_t same = 0;
	while (left[same] && left[same] == right[same])
		same++;
	core_note(left, same + 1, READ), core_note(right, same + 1, READ);
	return strcmp(left, right);
}

WRAP(char *, strcpy, (char *to, const char *from))
{
	size_t size = strlen(from) + 1;
	core_note(from, size, READ), core_note(to, size, WRITE);
	return strcpy(to, from);
}

WRAP(char *, strdup, (const char *from))
{
	size_t size = strlen(from) + 1;
	char *to = malloc(size);
	core_note(from, size, READ);
	if (to) {
		core_note(to, size, WRITE);
		memcpy(to, from, size);
	}
	return to;
}

/* The compiler is not told that nothing was stored there: a block that is used again holds something. */
static __attribute__((noinline, noipa)) void *block_of(size_t size) { return malloc(size); }

/* Blocks are used again: what their bytes were before is known only if the filling is done here. */
WRAP(void *, calloc, (size_t count, size_t each))
{
	size_t size;
	void *block = __builtin_mul_overflow(count, each, &size) ? NULL : block_of(size);
	if (block) {
		core_note(block, size, WRITE);
		memset(block, 0, size);
	}
	return block;
}

WRAP(void *, realloc, (void *block, size_t size))
{
	size_t before = block ? malloc_usable_size(block) : 0, kept = before < size ? before : size;
	void *moved = block_of(size);
	if (moved && kept) {
		core_note(block, kept, READ), core_note(moved, kept, WRITE);
		memcpy(moved, block, kept);
	}
	if (moved || !size)
		free(block);
	return moved;
}

/* A sort of two or more reads and writes all of them; its comparisons are instrumented, its moves are not. */
WRAP(void, qsort, (void *base, size_t count, size_t size, int (*compare)(const void *, const void *)))
{
	if (count > 1)
		core_note(base, count * size, READ), core_note(base, count * size, WRITE);
	qsort(base, count, size, compare);
}

/* What the kernel reads and writes for the program. */
#define FILLS(type, name, parameters, arguments, where, size)   \
	WRAP(type, name, parameters)                            \
	{                                                       \
		core_note(where, size, PREPARE);                     \
		type result = name arguments;                   \
		if (result > 0)                                 \
			core_note(where, (uint64_t)result, WRITE);   \
		return result;                                  \
	}
#define TAKES(type, name, parameters, arguments, where)         \
	WRAP(type, name, parameters)                            \
	{                                                       \
		type result = name arguments;                   \
		if (result > 0)                                 \
			core_note(where, (uint64_t)result, READ);    \
		return result;                                  \
	}
FILLS(ssize_t, read, (int fd, void *to, size_t size), (fd, to, size), to, size)
FILLS(ssize_t, pread, (int fd, void *to, size_t size, off_t offset), (fd, to, size, offset), to, size)
TAKES(ssize_t, write, (int fd, const void *from, size_t size), (fd, from, size), from)
TAKES(ssize_t, pwrite, (int fd, const void *from, size_t size, off_t offset), (fd, from, size, offset), from)

WRAP(int, fstat, (int fd, struct stat *status))
{
	core_note(status, sizeof *status, PREPARE);
	int result = fstat(fd, status);
	if (result == 0)
		core_note(status, sizeof *status, WRITE);
	return result;
}
