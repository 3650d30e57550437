/* SPDX-License-Identifier: MIT */
/*
 * The BPF programs in the kernel: opened, set up, verified, attached; and their memory, mapped here.
 *
 * Not thread-safe, but the memory may be read at any time (with atomic loads: the programs write it).
 * The programs stay attached as long as the links' descriptors are open, and no longer.
 */
#ifndef PTW_PROGRAMS_H
#define PTW_PROGRAMS_H

#include <stddef.h>
#include <stdint.h>

#include "../bpf/record.h"

struct bpf_object;
struct bpf_link;

struct ptw_probe_point;

enum ptw_programs_limit { PTW_LINKS = 16 + PTW_PROBES };

struct ptw_programs_config {
	const uint8_t *object;		/* the BPF object: an ELF file's bytes */
	uint32_t object_size;
	int raw;			/* attach the raw_tp programs instead of the typed ones */
	uint32_t ring_bytes;
	uint64_t wake_bytes;		/* in the ring before the consumer is woken */
	uint32_t pid_namespace;
	uint32_t all;			/* follow every task but those of the process `self` */
	uint32_t self;
	uint32_t capture;		/* most bytes kept of a buffer */
	uint32_t frames;		/* most frames of a call stack */
	const uint8_t *descriptions;	/* PTW_NUMBERS of struct ptw_description */
	const uint8_t *probe_specs;	/* PTW_PROBES of struct ptw_probe_spec */
	const struct ptw_probe_point *probes;
	uint32_t probe_count;
};

struct ptw_programs {
	struct bpf_object *object;
	struct bpf_link *links[PTW_LINKS];
	unsigned int link_count;
	int tasks_fd;			/* task storage of struct ptw_task, by pidfd */
	int ring_fd;
	char *shared;			/* the programs' global variables */
	size_t shared_size;
	struct ptw_cpu_counts *counts;	/* PTW_CPUS; this and the next lie in there */
	struct ptw_losses *losses;
	struct ptw_bank *banks;		/* PTW_BANKS */
	uint32_t *generation;		/* of the filter rules */
	uint32_t *waiting_tasks;
	uint32_t *enabled;		/* set while all programs are attached */
	int rules_fd[PTW_FILTERS];	/* maps of filter rules */
	int waiting_fd;			/* map of tids to be followed from their next call on */
	int killed_fd;			/* map of pids to the signals that ended them */
	uint32_t *wake_pending;		/* set by the programs when they wake the consumer, cleared by it */
};

/* Load and verify; nothing is attached. Returns 0 or a negative errno, and then nothing is left to undo. */
int ptw_programs_init(struct ptw_programs *programs, const struct ptw_programs_config *config);
void ptw_programs_deinit(struct ptw_programs *programs);

/* What the loader said last in this thread; empty for nothing. */
const char *ptw_programs_trouble(void);

/* Attach all or none, probes included. Returns 0 or a negative errno. */
int ptw_programs_attach(struct ptw_programs *programs, const struct ptw_probe_point *probes, uint32_t probe_count);

/* Detach and wait until none of them runs any more. */
void ptw_programs_detach(struct ptw_programs *programs);

#endif
