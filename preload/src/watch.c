/* SPDX-License-Identifier: MIT */
/* Setting watchpoints; watch.h says what is guaranteed, watch_hit.c what is done at a hit. */
#define _GNU_SOURCE
#include "watch.h"

#include "control.h"
#include "engine.h"
#include "handshake.h"
#include "notice.h"
#include "object_file.h"
#include "watch_hit.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { LIBRARIES_MAX = 4096, WORD = 8 };

bool ptw_watching;

static const struct ptw_watch_plan *plan;

static const struct ptw_watch_file *file_of(uint32_t number)
{
	return (const struct ptw_watch_file *)(plan + 1) + number;
}

static const struct ptw_watch_wanted *wanted_of(uint32_t number)
{
	return (const struct ptw_watch_wanted *)file_of(plan->files) + number;
}

/* --- the plan ---------------------------------------------------------------------------------------------------- */

static const void *map_plan(const char *path, uint64_t *size)
{
	struct stat status;
	long fd = PTW_SYS(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0, 0, 0), at = -1;
	if (fd < 0)
		return NULL;
	if (PTW_SYS(SYS_fstat, fd, &status, 0, 0, 0, 0) == 0 && status.st_size > 0 && status.st_size < 1 << 20)
		at = PTW_SYS(SYS_mmap, 0, status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	ptw_close((int)fd);
	*size = (uint64_t)status.st_size;
	return at < 0 && at >= -4095 ? NULL : (const void *)at;
}

static bool sound(const struct ptw_watch_wanted *wanted)
{
	return wanted->length > 0 && wanted->length <= PTW_WATCH_BYTES && wanted->mode >= PTW_WATCH_WRITE &&
	       wanted->mode <= PTW_WATCH_BOTH && wanted->file >= PTW_WATCH_ANYWHERE && wanted->file < (int32_t)plan->files;
}

static bool read_plan(const char *path)
{
	uint64_t size = 0;
	plan = map_plan(path, &size);
	if (!plan || size < sizeof *plan || plan->magic != PTW_WATCH_MAGIC || plan->version != PTW_WATCH_VERSION ||
	    plan->files > PTW_WATCH_FILES || plan->watches == 0 || plan->watches > PTW_WATCHES ||
	    size != sizeof *plan + plan->files * sizeof(struct ptw_watch_file) +
			    plan->watches * sizeof(struct ptw_watch_wanted))
		return false;
	for (uint32_t i = 0; i < plan->files; i++)
		if (file_of(i)->identity == 0 || file_of(i)->identity > PTW_WATCH_IDENTITY)
			return false;
	for (uint32_t i = 0; i < plan->watches; i++)
		if (!sound(wanted_of(i)))
			return false;
	return true;
}

/* --- where it is ------------------------------------------------------------------------------------------------- */

/* Where a file lies; false: nowhere, yet. */
static bool find_file(const struct ptw_watch_file *file, uint64_t *ret)
{
	uint32_t left = LIBRARIES_MAX;
	for (const struct link_map *map = _r_debug.r_map; map && left; map = map->l_next, left--)
		if (ptw_is_file(map->l_addr, (uint64_t)map->l_ld, file->low, file->high, file->begins, file->identity)) {
			*ret = map->l_addr;
			return true;
		}
	return false;
}

/* Its file is one that the program may load. */
static bool is_late(const struct ptw_watch_wanted *wanted)
{
	return wanted->file != PTW_WATCH_ANYWHERE && file_of((uint32_t)wanted->file)->late;
}

static bool locate(const struct ptw_watch_wanted *wanted, uint64_t *ret)
{
	uint64_t base = 0;
	if (wanted->file != PTW_WATCH_ANYWHERE && !find_file(file_of((uint32_t)wanted->file), &base))
		return false;
	*ret = base + wanted->address;
	return true;
}

/* --- the processor's --------------------------------------------------------------------------------------------- */

/* What one debug register takes of [at, at + left): 8, 4, 2 or 1 bytes, at a multiple of that. */
static uint32_t piece(uint64_t at, uint64_t left)
{
	uint32_t bytes = WORD;
	while (bytes > left || at % bytes)
		bytes /= 2;
	return bytes;
}

/* Of this thread and all that come from it; stands still until it is enabled. */
static struct perf_event_attr event_of(uint64_t at, uint32_t bytes, uint32_t number)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_BREAKPOINT, .size = sizeof attr, .sample_period = 1, .disabled = 1, .inherit = 1,
		.exclude_kernel = 1, .exclude_hv = 1, .remove_on_exec = 1, .sigtrap = 1};
	attr.bp_type = wanted_of(number)->mode == PTW_WATCH_WRITE ? HW_BREAKPOINT_W
								  : HW_BREAKPOINT_RW; /* there is none of reads only */
	attr.bp_addr = at;
	attr.bp_len = bytes;
	attr.sig_data = PTW_WATCH_BY_PROCESSOR | number;
	return attr;
}

/* A descriptor, or negative errno. */
static long open_one(uint64_t at, uint32_t bytes, uint32_t number)
{
	struct perf_event_attr attr = event_of(at, bytes, number);
	return PTW_SYS(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC, 0);
}

static void cannot(uint32_t number, long error)
{
	char line[140];
	snprintf(line, sizeof line, "watchpoint %u cannot be set (%s): nothing of it is recorded", number,
		 strerrordesc_np((int)-error));
	ptw_notice(PTW_NOTICE_WATCH, NULL, line);
}

/* An event that waits for its library: of `bytes` at `at` in its file. `id` is the kernel's: the program may close or
 * replace a descriptor. */
static struct waiting {
	uint64_t id, at;
	int fd;
	uint32_t bytes, number;
} waiting[PTW_WATCHES];
static unsigned waiting_count;
static bool forked; /* events were its parent's: they must not be changed here */

static uint64_t id_of(int fd)
{
	uint64_t id = 0;
	return PTW_SYS(SYS_ioctl, fd, PERF_EVENT_IOC_ID, &id, 0, 0, 0) == 0 ? id : 0;
}

/* Where nobody looks, until it is known where. */
static const uint64_t nowhere;

static long open_piece(uint64_t at, uint32_t bytes, uint32_t number, bool late)
{
	long fd = open_one(late ? (uint64_t)&nowhere : at, bytes, number), high;
	if (fd < 0 || !late)
		return fd;
	high = PTW_SYS(SYS_fcntl, fd, F_DUPFD_CLOEXEC, PTW_DESCRIPTOR_BASE, 0, 0, 0);
	if (high < 0)
		high = PTW_SYS(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 16, 0, 0, 0);
	if (high < 0) {
		ptw_close((int)fd);
		return high;
	}
	waiting[waiting_count++] = (struct waiting){id_of((int)high), at, (int)high, bytes, number};
	return fd;
}

/* A file's place in memory is a multiple of a page: how a range is split does not depend on it. */
static unsigned open_all(const struct ptw_watched_range *range, int *ret)
{
	unsigned count = 0;
	for (uint32_t i = 0; i < plan->watches; i++) {
		const struct ptw_watch_wanted *wanted = wanted_of(i);
		bool late = range[i].length == 0 && is_late(wanted);
		uint64_t at = late ? wanted->address : range[i].address, end = at + (late ? wanted->length : range[i].length);
		while (at < end) {
			uint32_t bytes = piece(at, end - at);
			long fd = count < PTW_WATCHES ? open_piece(at, bytes, i, late) : -ENOSPC;
			if (fd < 0) {
				cannot(i, fd);
				break;
			}
			ret[count++] = (int)fd;
			at += bytes;
		}
	}
	return count;
}

/* Have the waiting events of a watch look at where its file is now, in all threads; `on` false: nowhere. */
static void move_events(uint32_t number, uint64_t base, bool on)
{
	for (unsigned i = 0; i < waiting_count; i++) {
		const struct waiting *one = &waiting[i];
		if (one->number != number)
			continue;
		struct perf_event_attr attr = event_of(on ? base + one->at : (uint64_t)&nowhere, one->bytes, number);
		attr.disabled = !on;
		long error = one->id && id_of(one->fd) == one->id
				     ? PTW_SYS(SYS_ioctl, one->fd, PERF_EVENT_IOC_MODIFY_ATTRIBUTES, &attr, 0, 0, 0)
				     : -EBADF;
		if (error < 0 && on)
			cannot(number, error);
	}
}

/* --- the engine's ------------------------------------------------------------------------------------------------ */

/* As in ptw_under_engine: a request that a processor does not notice. */
static bool ask_engine(const struct ptw_watched_range *range, uint64_t count)
{
	volatile uint64_t request[6] = {PTW_WATCH_REQUEST, (uint64_t)range, count, 0, 0, 0};
	uint64_t answer = 0;
	__asm__ volatile("rolq $3, %%rdi\n\trolq $13, %%rdi\n\trolq $61, %%rdi\n\trolq $51, %%rdi\n\txchgq %%rbx, %%rbx"
			 : "+d"(answer)
			 : "a"(request)
			 : "cc", "memory", "rdi");
	return answer == 1;
}

/* --- setting them ------------------------------------------------------------------------------------------------ */

static struct ptw_watched_range ranges[PTW_WATCHES];

unsigned ptw_watches_open(int *ret)
{
	const char *path = getenv("PTWEAVE_WATCHES");
	if (!path || !*path)
		return 0;
	if (!read_plan(path) || !ptw_watch_hits_init(plan->watches)) {
		ptw_notice(PTW_NOTICE_WATCH, NULL, "the plan of watchpoints cannot be used: nothing is watched");
		plan = NULL;
		return 0;
	}
	for (uint32_t i = 0; i < plan->watches; i++) {
		const struct ptw_watch_wanted *wanted = wanted_of(i);
		if (locate(wanted, &ranges[i].address)) {
			ranges[i].length = wanted->length;
			ranges[i].mode = wanted->mode;
		}
	}
	return ptw_under_engine() ? 0 : open_all(ranges, ret);
}

void ptw_watches_begin(const int *fds, unsigned count, bool traced)
{
	bool any = false;
	for (uint32_t i = 0; plan && traced && i < plan->watches; i++) {
		any |= ranges[i].length > 0 || is_late(wanted_of(i));
		if (ranges[i].length > 0)
			ptw_watch_hits_expect(i, &ranges[i]);
	}
	if (any) {
		ptw_watch_catch();
		ptw_watching = true;
		if (ptw_under_engine() && !ask_engine(ranges, plan->watches))
			cannot(0, -ENOSYS);
	}
	for (unsigned i = 0; i < count; i++) {
		if (any)
			PTW_SYS(SYS_ioctl, fds[i], PERF_EVENT_IOC_ENABLE, 0, 0, 0, 0);
		ptw_close(fds[i]); /* the supervisor's keep them */
	}
}

/* --- libraries that come later ----------------------------------------------------------------------------------- */

static void arrive(uint32_t number, uint64_t address)
{
	const struct ptw_watch_wanted *wanted = wanted_of(number);
	bool told = ranges[number].length > 0 && ranges[number].address == address;
	ranges[number] = (struct ptw_watched_range){address, wanted->length, wanted->mode};
	if (forked && !ptw_under_engine()) {
		if (!told)
			ptw_notice(PTW_NOTICE_WATCH, NULL,
				   "a fork child has loaded a library by itself: what is in it is not watched there");
		return;
	}
	ptw_watch_hits_expect(number, &ranges[number]);
	if (ptw_under_engine())
		ask_engine(ranges, plan->watches);
	else
		move_events(number, address - wanted->address, true);
}

static void leave(uint32_t number)
{
	ranges[number].length = 0;
	if (forked && !ptw_under_engine())
		return;
	ptw_watch_hits_gone(number);
	if (ptw_under_engine())
		ask_engine(ranges, plan->watches);
	else
		move_events(number, 0, false);
}

/* Where threads are processes, libraries stay, and are not mapped everywhere at once: what is not here may be there. */
void ptw_watches_arrived(void)
{
	for (uint32_t i = 0; ptw_watching && i < plan->watches; i++) {
		uint64_t address;
		if (!is_late(wanted_of(i)))
			continue;
		struct ptw_watched_range known = ptw_watch_hits_at(i);
		if (!locate(wanted_of(i), &address)) {
			if (ranges[i].length > 0 && !ptw_process_mode)
				leave(i);
		} else if (known.length == 0 || known.address != address) {
			arrive(i, address);
		}
	}
}

void ptw_watches_admitted(void)
{
	bool any = false;
	for (uint32_t i = 0; ptw_watching && ptw_under_engine() && i < plan->watches; i++) {
		struct ptw_watched_range known = ptw_watch_hits_at(i);
		if (known.length == 0 || (known.length == ranges[i].length && known.address == ranges[i].address))
			continue;
		ranges[i] = known;
		any = true;
	}
	if (any)
		ask_engine(ranges, plan->watches);
}

void ptw_watches_forked(void)
{
	ptw_watch_hits_forked();
	forked = true;
	for (unsigned i = 0; i < waiting_count; i++)
		if (id_of(waiting[i].fd) == waiting[i].id)
			ptw_close(waiting[i].fd);
	waiting_count = 0;
}
