/* SPDX-License-Identifier: MIT */
/*
 * Process mode: semaphores with names. glibc maps their files by itself, where only the thread that opened one would see
 * it. So they are opened here, as glibc does it (the same files, so that other programs find them), and mapped for all
 * threads, as files that the program maps (files.h). A file that is open already is not mapped again.
 */
#define _GNU_SOURCE
#include "heap.h"
#include "real.h"
#include "slots.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define DIRECTORY "/dev/shm/"
#define PREFIX "sem."

enum { ATTEMPTS = 50 };

/* One that is open; in ptw_shared->semaphores. */
struct ptw_named {
	struct ptw_named *next;
	sem_t *semaphore;
	uint64_t device, inode;
	uint64_t users;
};

/* What the kernel reads and writes: in memory that is never closed. */
struct room {
	char path[sizeof DIRECTORY PREFIX + NAME_MAX];
	char fresh[64];
	sem_t semaphore;
	struct stat status;
};

static long open_file(const char *path, int flags, mode_t mode)
{
	return PTW_SYS(SYS_openat, AT_FDCWD, path, flags | O_RDWR | O_NOFOLLOW | O_CLOEXEC, mode, 0, 0);
}

/* 0 or negative errno. */
static long set_path(struct room *room, const char *name)
{
	while (*name == '/')
		name++;
	size_t length = strlen(name);
	if (length == 0 || strchr(name, '/'))
		return -EINVAL;
	if (length > NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(room->path, DIRECTORY PREFIX, sizeof DIRECTORY PREFIX);
	strcat(room->path, name);
	return 0;
}

/* A file of its own with a semaphore in it; a descriptor, or negative errno. */
static long make(struct room *room, mode_t mode, unsigned value)
{
	long fd = -EEXIST;
	if (GLIBC(sem_init)(&room->semaphore, 1, value) != 0)
		return -errno;
	for (int i = 0; i < ATTEMPTS && fd == -EEXIST; i++) {
		snprintf(room->fresh, sizeof room->fresh, DIRECTORY PREFIX "%d-%d-%llx", ptw_gettid(), i,
			 (unsigned long long)ptw_monotonic_ns());
		fd = open_file(room->fresh, O_CREAT | O_EXCL, mode);
	}
	if (fd < 0)
		return fd;
	long written = PTW_SYS(SYS_write, fd, &room->semaphore, sizeof room->semaphore, 0, 0, 0);
	if (written == (long)sizeof room->semaphore)
		return fd;
	PTW_SYS(SYS_unlink, room->fresh, 0, 0, 0, 0, 0);
	ptw_close((int)fd);
	return written < 0 ? written : -ENOSPC;
}

/* Made, and given its name: whoever opens it finds it whole. */
static long create(struct room *room, mode_t mode, unsigned value)
{
	long fd = make(room, mode, value);
	if (fd < 0)
		return fd;
	long error = PTW_SYS(SYS_link, room->fresh, room->path, 0, 0, 0, 0);
	PTW_SYS(SYS_unlink, room->fresh, 0, 0, 0, 0, 0);
	if (error < 0)
		ptw_close((int)fd);
	return error < 0 ? error : fd;
}

static long find(struct room *room, int flags, mode_t mode, unsigned value)
{
	for (;;) {
		bool may_be = !(flags & O_CREAT) || !(flags & O_EXCL);
		long fd = may_be ? open_file(room->path, 0, 0) : -ENOENT;
		if (fd != -ENOENT || !(flags & O_CREAT))
			return fd;
		if (value > SEM_VALUE_MAX)
			return -EINVAL;
		fd = create(room, mode, value);
		if (fd != -EEXIST || (flags & O_EXCL))
			return fd;
	}
}

/* The lock is held. */
static sem_t *share(struct room *room, int fd)
{
	const struct stat *status = &room->status;
	if (PTW_SYS(SYS_fstat, fd, status, 0, 0, 0, 0) != 0) {
		errno = EINVAL;
		return SEM_FAILED;
	}
	struct ptw_named *named = ptw_shared->semaphores;
	while (named && (named->device != status->st_dev || named->inode != status->st_ino))
		named = named->next;
	if (named) {
		named->users++;
		return named->semaphore;
	}
	void *place = mmap(NULL, sizeof(sem_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (place == MAP_FAILED)
		return SEM_FAILED;
	named = ptw_open_take(sizeof *named);
	if (!named) {
		munmap(place, sizeof(sem_t));
		errno = ENOMEM;
		return SEM_FAILED;
	}
	*named = (struct ptw_named){ptw_shared->semaphores, place, status->st_dev, status->st_ino, 1};
	ptw_shared->semaphores = named;
	return place;
}

/* Handlers may fork, and would wait for the lock. */
static void hold(uint64_t *mask) { ptw_lock_masked(&ptw_shared->semaphores_lock, mask); }

static void let_go(const uint64_t *mask) { ptw_unlock_masked(&ptw_shared->semaphores_lock, mask); }

static sem_t *open_here(const char *name, int flags, mode_t mode, unsigned value)
{
	uint64_t mask;
	sem_t *ret = SEM_FAILED;
	struct room *room = ptw_open_take(sizeof *room);
	long fd = room ? set_path(room, name) : -ENOMEM;
	if (fd == 0)
		fd = find(room, flags & (O_CREAT | O_EXCL), mode, value);
	if (fd >= 0) {
		hold(&mask);
		ret = share(room, (int)fd);
		let_go(&mask);
		ptw_close((int)fd);
	} else {
		errno = (int)-fd;
	}
	if (room)
		ptw_open_give(room);
	return ret;
}

PTW_EXPORT sem_t *sem_open(const char *name, int flags, ...)
{
	mode_t mode = 0;
	unsigned value = 0;
	if (flags & O_CREAT) {
		va_list arguments;
		va_start(arguments, flags);
		mode = va_arg(arguments, mode_t);
		value = va_arg(arguments, unsigned);
		va_end(arguments);
	}
	return ptw_process_mode ? open_here(name, flags, mode, value) : GLIBC(sem_open)(name, flags, mode, value);
}

/* Whether it was one of ours. */
static bool close_here(sem_t *semaphore)
{
	uint64_t mask;
	hold(&mask);
	struct ptw_named **link = &ptw_shared->semaphores, *named;
	while ((named = *link) && named->semaphore != semaphore)
		link = &named->next;
	if (named && --named->users == 0) {
		munmap(semaphore, sizeof *semaphore);
		*link = named->next;
		ptw_open_give(named);
	}
	let_go(&mask);
	return named != NULL;
}

PTW_EXPORT int sem_close(sem_t *semaphore)
{
	return ptw_process_mode && close_here(semaphore) ? 0 : GLIBC(sem_close)(semaphore);
}
