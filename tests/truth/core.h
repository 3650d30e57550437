/* SPDX-License-Identifier: MIT */
/* What the halves of the truth checker's runtime share: truth.c keeps epochs, threads and the file; calls.c hears of
 * accesses. */
#ifndef PTWEAVE_TRUTH_CORE_H
#define PTWEAVE_TRUTH_CORE_H

#include <stdint.h>

enum core_how { READ, WRITE, PREPARE }; /* PREPARE: keeps what is there, for a write that is known when it is over */

/* The calling thread accesses memory: called before a write, and before the page can be gone. */
__attribute__((visibility("hidden"))) void core_note(const volatile void *where, uint64_t size, enum core_how how);

/* A function called in the program's name: a call of NAME there is made one of truth_NAME before it is linked. */
#define EXPORT __attribute__((visibility("default")))
#define WRAP(type, name, parameters)    \
	type truth_##name parameters;   \
	EXPORT type truth_##name parameters

#endif
