/* SPDX-License-Identifier: MIT */
/*
 * Mangled names as their programmers wrote them: C++ (Itanium ABI), Rust's legacy scheme and its v0 (RFC 2603), by
 * libiberty. Keeps nothing between calls, takes no lock; thread-safe. The caller owns both buffers.
 */
#ifndef PTD_DEMANGLE_H
#define PTD_DEMANGLE_H

#include <stddef.h>
#include <stdint.h>

/*
 * Write what `name` stands for to `text` (of `size` bytes, no NUL at its end) and return its length; -1 when it is not
 * mangled, malformed, or stands for more than `size` bytes.
 */
int64_t ptd_demangle(const char *name, char *text, size_t size);

#endif
