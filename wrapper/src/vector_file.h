/* SPDX-License-Identifier: MIT */
/*
 * A file of events: the sink of a vector's consumer. Format: preload/src/vector_format.h.
 *
 * What was written is readable at any moment and after death at any instruction. Without a ring the file grows; with
 * one it has slots for lists, and a new list takes the slot whose newest event is the oldest, unless that one is still
 * written to (lists of several lanes come in any order, those of one in theirs): the newest events stay, of each lane
 * without a hole, and those overwritten are counted. A write that fails ends the file behind the last whole chunk.
 * Not thread-safe.
 */
#ifndef PTW_VECTOR_FILE_H
#define PTW_VECTOR_FILE_H

#include "vector_consumer.h"

struct ptv_file;

enum { PTV_SLOTS_MIN = 8 };

/* Create `path` (it must not be there). `ring`: bytes the file may have, at least PTV_SLOTS_MIN lists; 0: as many as
 * come. Lists have `list_size` bytes. 0, or negative errno (-ERANGE: the ring is too small). */
int ptv_file_create(const char *path, uint64_t ring, uint32_t list_size, struct ptv_file **ret);
void ptv_file_destroy(struct ptv_file *file);

/* The sink that writes to it. */
struct ptv_sink ptv_file_sink(struct ptv_file *file);

/* Events that newer ones took the place of. */
uint64_t ptv_file_overwritten(const struct ptv_file *file);

/* What the consumer of the vector in `fd` does, all in one: a file, its sink, a consumer of it. */
struct ptv_recorder {
	struct ptv_file *file;
	struct ptv_consumer *consumer;
};

int ptv_recorder_init(struct ptv_recorder *recorder, int fd, const char *path, uint64_t ring);
void ptv_recorder_deinit(struct ptv_recorder *recorder);

#endif
