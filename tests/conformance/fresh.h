/* SPDX-License-Identifier: MIT */
/*
 * For system calls that are given memory: runs a function with pointers into pages that the calling thread has not
 * touched, in every state that a page can be in: touched by nobody, written by another thread, read by another,
 * in the heap, in a mapping, in a global, on another thread's stack; and lying across the end of a page.
 */
#ifndef PTWEAVE_FRESH_H
#define PTWEAVE_FRESH_H

#include "promise.h"

enum { FRESH_PAGES = 4, FRESH_ROOM = 2 * PAGE }; /* bytes that a function may use */

typedef void (*with_memory)(char *memory);

static char fresh_global[FRESH_PAGES * PAGE] __attribute__((aligned(4096)));
static with_memory fresh_body;

__attribute__((unused)) static void *fresh_write(void *memory)
{
	memset(memory, 0x33, FRESH_PAGES * PAGE);
	return NULL;
}

__attribute__((unused)) static void *fresh_read(void *memory)
{
	volatile char sum = 0;
	for (int i = 0; i < FRESH_PAGES * PAGE; i++)
		sum = (char)(sum + ((volatile char *)memory)[i]);
	return NULL;
}

__attribute__((unused)) static void *fresh_run(void *memory)
{
	fresh_body((char *)memory);
	return NULL;
}

/* Calls the body in this thread and in another one, each with memory of its own kind. */
__attribute__((unused)) static void with_fresh_memory(with_memory body)
{
	char *heap = (char *)malloc((FRESH_PAGES + 1) * PAGE);
	char local[FRESH_PAGES * PAGE];
	fresh_body = body;
	body(untouched(FRESH_PAGES));
	body(untouched(FRESH_PAGES) + PAGE - 8);
	char *written = untouched(FRESH_PAGES), *read = untouched(FRESH_PAGES);
	in_thread(fresh_write, written);
	body(written + PAGE - 16);
	in_thread(fresh_read, read);
	body(read + 2 * PAGE - 24);
	in_thread(fresh_run, fresh_global + PAGE - 8);
	body(fresh_global + PAGE - 8);
	memset(heap, 0, (FRESH_PAGES + 1) * PAGE);
	in_thread(fresh_run, heap + PAGE - (uintptr_t)heap % PAGE - 8);
	memset(local, 0, sizeof local);
	in_thread(fresh_run, local + PAGE - (uintptr_t)local % 8);
	free(heap);
}

#endif
