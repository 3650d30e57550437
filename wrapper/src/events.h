/* SPDX-License-Identifier: MIT */
/*
 * The recorder of system calls and kernel events: loads the BPF programs, attaches them, follows trees of tasks, and drains the ring
 * into batches with a thread of its own, so that a caller who is busy elsewhere loses nothing.
 *
 * Threads: every function may be called from any thread of the process that created the recorder, one at a time for
 * create, start, filter, stop and destroy. A forked child must not use the recorder; calls from one return -ECHILD and do
 * nothing, destroy included (the child's exec closes its descriptors, all of which are close-on-exec).
 * Signals: the thread blocks all of them. No function here is safe in a signal handler.
 * Memory: batches belong to the recorder; one that was taken belongs to the caller until it is released.
 * The programs stay attached as long as the process has the links' descriptors open, and no longer.
 */
#ifndef PTW_EVENTS_H
#define PTW_EVENTS_H

#include <stdint.h>

#include "batch.h"
#include "filters.h"

/* cffi begin */
enum ptw_variant { PTW_VARIANT_TYPED, PTW_VARIANT_RAW };

enum ptw_loss { PTW_LOSS_RING_FULL, PTW_LOSS_NO_MEMORY, PTW_LOSS_NO_EXIT };

struct ptw_probe_point {
	const char *path;		/* of the file that is probed */
	uint64_t offset;		/* in the file */
	uint64_t semaphore;		/* in the file: counts who looks at the probe; 0 none */
	uint32_t at_return;		/* when the function there returns */
};

struct ptw_config {
	const uint8_t *object;		/* the BPF object: an ELF file's bytes */
	uint32_t object_size;
	uint32_t variant;		/* enum ptw_variant */
	uint32_t ring_bytes;		/* a power of two, at least a page */
	uint32_t batch_rows;
	uint32_t batches;		/* at most so many at a time: what bounds the memory */
	uint32_t batch_age_ms;		/* a batch is handed over when full, or so old */
	uint32_t pid_namespace;		/* inode of the pid namespace to number tasks in; 0: the initial one */
	uint32_t wake_bytes;		/* in the ring before the thread is woken; 0: a quarter of it, at most 1 MiB */
	uint32_t all;			/* follow every task of the machine but our own */
	uint32_t self;			/* our pid */
	uint32_t capture;		/* most bytes kept of a buffer, at most 4096 */
	uint32_t frames;		/* most frames of a call stack, at most 64; 0: none */
	const uint8_t *descriptions;	/* 512 of struct ptw_description (wrapper/bpf/record.h), by call number */
	struct ptw_filter_rules rules;
	const uint8_t *probe_specs;	/* 128 of struct ptw_probe_spec (wrapper/bpf/record.h) */
	const struct ptw_probe_point *probes;	/* where they are, in the same order */
	uint32_t probe_count;
};

struct ptw_totals {
	/* by kind of event: 0 system calls, 1 blocking, 2 changes of descriptors, 3 signals, 4 writes, 5 to 7 probes; 8 files */
	uint64_t produced[9];		/* calls that began, events that happened */
	uint64_t submitted[9];		/* of those, in the ring */
	uint64_t taken[9];		/* of those, out of it again: rows in batches */
	uint64_t lost[9];		/* ring full: of events beside system calls */
	uint64_t malformed;		/* records the batch refused */
	uint64_t compat;		/* 32-bit calls, not recorded */
	uint64_t io_uring;		/* operations that io_uring_enter submitted, not recorded */
	uint64_t tasks;			/* tasks that could not be followed */
	uint64_t wakeups;
	uint64_t starved;		/* times the thread found no free batch */
};

struct ptw_recorder;

/*
 * Load and verify the programs; nothing is attached yet. Returns 0 or a negative errno; ptw_recorder_trouble() then
 * has the loader's last words.
 */
int ptw_recorder_create(const struct ptw_config *config, struct ptw_recorder **ret);
void ptw_recorder_destroy(struct ptw_recorder *recorder);

/* What the loader said last in this thread; empty for nothing. Valid until the next create here. */
const char *ptw_recorder_trouble(void);

/* Attach the programs, those of the probes in `config` too, and start the thread. Returns 0 or a negative errno. */
int ptw_recorder_start(struct ptw_recorder *recorder, const struct ptw_config *config);

/* Detach, wait until no program runs any more, and end the thread. What is in the ring stays there to be taken. */
int ptw_recorder_stop(struct ptw_recorder *recorder);

/*
 * Follow one task, a process's main thread or another, and all it will create. Returns 0 or a negative errno: -ESRCH
 * when there is none, -EEXIST when it is followed already.
 */
int ptw_recorder_follow(struct ptw_recorder *recorder, int tid);

/* The signal that ended the last process of this number that was followed; 0: none did, or that is not known any more. */
int ptw_recorder_killed(struct ptw_recorder *recorder, int pid);

/* Replace the filter rules, at any time; see ptw_filters_set. Returns 0 or a negative errno. */
int ptw_recorder_filter(struct ptw_recorder *recorder, const struct ptw_filter_rules *rules);

/* A descriptor that is readable when a batch is ready. */
int ptw_recorder_fd(const struct ptw_recorder *recorder);

/*
 * Take a batch: one that is full or old enough, or with `all` any rows there are; after stop, all that is left in the
 * ring, batch by batch. Returns 1 with a batch, 0 when there is none, or a negative errno.
 */
int ptw_recorder_take(struct ptw_recorder *recorder, int all, struct ptw_batch **ret);
int ptw_recorder_release(struct ptw_recorder *recorder, struct ptw_batch *batch);

/* How many batches wait to be taken. */
uint32_t ptw_recorder_backlog(const struct ptw_recorder *recorder);

/* Counters; exact after stop and the last take, else a snapshot. */
int ptw_recorder_totals(const struct ptw_recorder *recorder, struct ptw_totals *ret);

/* Calls with this number lost for this reason; 512 stands for all numbers above 511. */
uint64_t ptw_recorder_lost(const struct ptw_recorder *recorder, uint32_t loss, uint32_t number);
/* cffi end */

#endif
