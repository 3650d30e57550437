/* SPDX-License-Identifier: MIT */
/*
 * One dependence/<thread>.evl, record by record. Format: data/ptweave/data/evl.py.
 *
 * The bytes are hostile: every length is checked before it is used. A file that cannot be read any further ends there,
 * and says how many bytes were left. The file is opened for each refill, so a thousand of them need no descriptors.
 * Not thread-safe. The caller keeps `path` alive.
 */
#ifndef PTW_EVL_FILE_H
#define PTW_EVL_FILE_H

#include <stddef.h>
#include <stdint.h>

enum {
	EVL_HEADER = 64,
	EVL_RECORD = 56,
	EVL_MAX_FRAMES = 64,
	EVL_OPEN = 1,
	EVL_FIRST_ACCESS = 33, /* from here */
	EVL_LAST_ACCESS = 37,  /* to here records are no thunks */
	EVL_BUFFER = 64 << 10,
};

#define EVL_MAGIC 0x00314c5645575450ull

enum evl_item {
	EVL_END = 0,
	EVL_IS_RECORD = 1,
	EVL_IS_SECTION = 2,
	EVL_IS_ACCESS = 3, /* a record that begins no thunk */
};

struct evl_section {
	uint32_t pid, tid;
	int32_t thread;
	uint32_t image;
	uint64_t tsc, marker, start_routine, lost;
};

struct evl_record {
	uint16_t operation, frames;
	uint64_t enter, leave, object;
	int64_t result;
	uint64_t version, argument;
	const unsigned char *stack; /* frames words, unaligned; valid until the next call */
};

struct evl_file {
	const char *path;
	unsigned char *buffer;
	uint64_t size, offset; /* of the file; of buffer[0] in it */
	size_t at, have, capacity;
	uint64_t unfinished; /* records that were begun and not finished */
	uint64_t corrupt;    /* records whose fields contradict each other */
	uint64_t unread;     /* bytes after which nothing could be made of the rest */
	uint64_t lost;       /* as the headers say */
	int sections;
};

/* 0, or negative errno (-ELOOP: a symbolic link, -EINVAL: not a regular file). */
int evl_file_init(struct evl_file *file, const char *path);
void evl_file_deinit(struct evl_file *file);

/* The next item (enum evl_item) into *section or *record; negative errno when reading failed. */
int evl_file_next(struct evl_file *file, struct evl_section *section, struct evl_record *record);

#endif
