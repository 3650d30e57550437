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

enum ptw_programs_limit { PTW_LINKS = 8 };

struct ptw_programs_config {
	const char *object;		/* path of the BPF object */
	int raw;			/* attach the raw_tp programs instead of the typed ones */
	uint32_t ring_bytes;
	uint64_t wake_bytes;		/* in the ring before the consumer is woken */
	uint32_t pid_namespace;
	const uint8_t *paths;		/* PTW_PATHS * PTW_NUMBERS */
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
	uint32_t *wake_pending;		/* set by the programs when they wake the consumer, cleared by it */
};

/* Load and verify; nothing is attached. Returns 0 or a negative errno, and then nothing is left to undo. */
int ptw_programs_init(struct ptw_programs *programs, const struct ptw_programs_config *config);
void ptw_programs_deinit(struct ptw_programs *programs);

/* What the loader said last in this thread; empty for nothing. */
const char *ptw_programs_trouble(void);

/* Attach all or none. Returns 0 or a negative errno. */
int ptw_programs_attach(struct ptw_programs *programs);

/* Detach and wait until none of them runs any more. */
void ptw_programs_detach(struct ptw_programs *programs);

#endif
