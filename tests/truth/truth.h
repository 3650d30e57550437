/* SPDX-License-Identifier: MIT */
/*
 * The truth about memory accesses: what a program compiled with -fsanitize=thread and linked with truth.c, in place of
 * the sanitizer's runtime, writes to the file named by PTWEAVE_TRUTH. tests/support/truth.py reads it.
 *
 * An epoch is what a thread does between two synchronisation calls. A row says which bytes of a page it read, which it
 * wrote, and which of those differ at its end from what they were before its first write to the page. Times are TSC.
 *
 *     header    magic, counts; threads; regions                       TRUTH_HEADER bytes
 *     chunks    TRUTH_CHUNK bytes each, of one thread: rows, ended by one whose magic is 0 or by the chunk's end
 */
#ifndef PTWEAVE_TRUTH_H
#define PTWEAVE_TRUTH_H

#include <stdint.h>

#define TRUTH_MAGIC 0x31485455525457ull /* "WTRUTH1" */

enum {
	TRUTH_THREADS = 4096,
	TRUTH_REGIONS = 1024,
	TRUTH_HEADER = 1 << 20,
	TRUTH_CHUNK = 1 << 20,
	TRUTH_ROW = 0x54574f52,
	TRUTH_PAGE = 4096,
	TRUTH_WORDS = TRUTH_PAGE / 64,
};

#define TRUTH_SIZE (8ull << 30) /* sparse */

enum truth_kind {
	TRUTH_READ_ONLY = 1, /* of an ELF file, not writable (after relocation) */
	TRUTH_RUNTIME = 2,   /* writable data of libc, ld.so, libtthread */
	TRUTH_OWN = 3,       /* this file, and other memory of truth.c */
	TRUTH_GLOBALS = 4,   /* writable data of the executable and its libraries */
};

struct truth_thread {
	uint32_t pid, tid;
	uint64_t begin, end;           /* TSC; end 0: it did not end by itself */
	uint64_t stack_low, stack_high;
	uint64_t moved_low, moved_high; /* another stack of it; 0 none */
	uint64_t epochs;
};

struct truth_region {
	uint64_t start, end;
	uint64_t kind;
};

struct truth_header {
	uint64_t magic;
	uint32_t threads, regions, chunks;
	uint32_t lost; /* rows that found no room: then the file is not the truth */
	struct truth_thread thread[TRUTH_THREADS];
	struct truth_region region[TRUTH_REGIONS];
};

struct truth_row {
	uint32_t magic;
	uint32_t thread;
	uint64_t epoch, begin, end;
	uint64_t page; /* address */
	uint64_t read[TRUTH_WORDS], write[TRUTH_WORDS], changed[TRUTH_WORDS]; /* a bit for each byte */
};

_Static_assert(sizeof(struct truth_header) <= TRUTH_HEADER, "the header fits");

#endif
