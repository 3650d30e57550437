/* SPDX-License-Identifier: MIT */
/* Reading event lists; evl_file.h says what is guaranteed. */
#define _GNU_SOURCE
#include "evl_file.h"
#include "evl_operation.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_RECORD (EVL_RECORD + 8 * EVL_MAX_FRAMES)

static uint32_t u32(const unsigned char *at)
{
	uint32_t value;
	memcpy(&value, at, sizeof value);
	return value;
}

static uint64_t u64(const unsigned char *at)
{
	uint64_t value;
	memcpy(&value, at, sizeof value);
	return value;
}

static uint16_t u16(const unsigned char *at)
{
	uint16_t value;
	memcpy(&value, at, sizeof value);
	return value;
}

static int open_regular(const char *path, uint64_t *size)
{
	struct stat status;
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
		close(fd);
		return -EINVAL;
	}
	*size = (uint64_t)status.st_size;
	return fd;
}

int evl_file_init(struct evl_file *file, const char *path)
{
	*file = (struct evl_file){.path = path};
	int fd = open_regular(path, &file->size);
	if (fd < 0)
		return fd;
	close(fd);
	file->capacity = file->size < EVL_BUFFER ? (size_t)file->size + 1 : EVL_BUFFER;
	file->buffer = malloc(file->capacity);
	return file->buffer ? 0 : -ENOMEM;
}

void evl_file_deinit(struct evl_file *file)
{
	free(file->buffer);
	file->buffer = NULL;
}

/* Have `need` bytes at buffer[at], if the file has them. 1 there, 0 the file ends before, or negative errno. */
static int fill(struct evl_file *file, size_t need)
{
	if (file->have - file->at >= need)
		return 1;
	memmove(file->buffer, file->buffer + file->at, file->have - file->at);
	file->offset += file->at;
	file->have -= file->at;
	file->at = 0;
	uint64_t size = 0;
	int fd = open_regular(file->path, &size);
	if (fd < 0)
		return fd;
	int error = 0;
	while (file->have < file->capacity && file->offset + file->have < file->size) {
		ssize_t got = pread(fd, file->buffer + file->have, file->capacity - file->have,
				    (off_t)(file->offset + file->have));
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			error = got < 0 ? -errno : 0;
			break;
		}
		file->have += (size_t)got;
	}
	close(fd);
	return error < 0 ? error : file->have >= need;
}

static int give_up(struct evl_file *file)
{
	uint64_t position = file->offset + file->at;
	file->unread = position < file->size ? file->size - position : 0;
	file->at = file->have;
	file->offset = file->size;
	file->at = file->have = 0;
	return EVL_END;
}

static int read_section(struct evl_file *file, struct evl_section *section)
{
	int filled = fill(file, EVL_HEADER);
	if (filled <= 0)
		return filled < 0 ? filled : give_up(file);
	const unsigned char *at = file->buffer + file->at;
	*section = (struct evl_section){
		.pid = u32(at + 8),
		.tid = u32(at + 12),
		.thread = (int32_t)u32(at + 16),
		.image = u32(at + 20) >> 8,
		.tsc = u64(at + 24),
		.marker = u64(at + 32),
		.start_routine = u64(at + 40),
		.lost = u64(at + 48),
	};
	file->lost += section->lost;
	file->sections++;
	file->at += EVL_HEADER;
	return EVL_IS_SECTION;
}

int evl_file_next(struct evl_file *file, struct evl_section *section, struct evl_record *record)
{
	for (;;) {
		int filled = fill(file, 8);
		if (filled < 0)
			return filled;
		if (filled == 0)
			return file->have == file->at && file->sections ? EVL_END : give_up(file);
		const unsigned char *at = file->buffer + file->at;
		if (u64(at) == EVL_MAGIC)
			return read_section(file, section);
		uint32_t word = u32(at), size = word & ~(uint32_t)EVL_OPEN;
		if (!file->sections || size < EVL_RECORD || size % 8 || size > MAX_RECORD)
			return give_up(file);
		filled = fill(file, size);
		if (filled <= 0)
			return filled < 0 ? filled : give_up(file);
		at = file->buffer + file->at;
		file->at += size;
		if (word & EVL_OPEN) {
			file->unfinished++;
			continue;
		}
		*record = (struct evl_record){
			.operation = u16(at + 4),
			.frames = u16(at + 6),
			.enter = u64(at + 8),
			.leave = u64(at + 16),
			.object = u64(at + 24),
			.result = (int64_t)u64(at + 32),
			.version = u64(at + 40),
			.argument = u64(at + 48),
			.stack = at + EVL_RECORD,
		};
		if (record->frames * 8u + EVL_RECORD != size || record->operation == 0 ||
		    record->operation >= EVL_OPERATIONS) {
			file->corrupt++;
			continue;
		}
		return record->operation >= EVL_FIRST_ACCESS && record->operation <= EVL_LAST_ACCESS ? EVL_IS_ACCESS
												     : EVL_IS_RECORD;
	}
}
