/* SPDX-License-Identifier: MIT */
/*
 * Reads what a perf event leaves in memory: its ring of records, and its AUX area (here: Intel PT packets), which goes
 * straight from the ring to a file. Protocol: linux/perf_event.h, struct perf_event_mmap_page.
 *
 * One thread reads a ring; the kernel writes it meanwhile. Nothing is allocated or kept here; whoever mapped the memory
 * unmaps it. Errors are negative errno values.
 */
#ifndef PTWEAVE_PERF_RING_H
#define PTWEAVE_PERF_RING_H

#include <stdint.h>

/* cffi begin */
struct ptw_ring {
	void *page;          /* struct perf_event_mmap_page; the ring of records begins at its data_offset */
	uint64_t mapped;     /* bytes mapped at `page` */
	const uint8_t *aux;  /* NULL: no AUX area */
	uint64_t aux_size;   /* a power of two */
	int file;            /* where AUX bytes go; negative: they are dropped, and counted as lost */
	uint64_t position;   /* of the next AUX byte to read, counted from the beginning of the trace */
	int full;            /* the last drain found the AUX area full: the kernel had to stop tracing */
	uint64_t stored;     /* AUX bytes written, in all */
	uint64_t lost;       /* AUX bytes that could not be written, in all */
	uint64_t overwritten; /* AUX bytes that were gone before they were read, in all */
	int error;           /* the first errno that writing met */
};

/* Take whole records into `out` (at least 65536 bytes, the longest record); returns bytes, 0 when there are none. */
int64_t ptw_ring_records(struct ptw_ring *ring, uint8_t *out, uint64_t size);

/* Write what is new in the AUX area, and give its room back; returns bytes taken. What cannot be written is lost: the
 * tracing goes on. Room is given back by the page: the kernel's driver (arch/x86/events/intel/pt.c,
 * pt_buffer_reset_markers) runs over what was not read yet where less than a page of room ends beyond a page's end. */
int64_t ptw_ring_aux(struct ptw_ring *ring);

/* The same for many: returns bytes taken in all. */
int64_t ptw_rings_aux(struct ptw_ring **rings, uint64_t count);

/* Write the whole AUX area of a ring that is overwritten (mapped read-only), oldest byte first, after tracing was
 * switched off; returns bytes, fewer than aux_size when it was not filled since it was mapped. Where the kernel began
 * in it does not matter. */
int64_t ptw_ring_snapshot(struct ptw_ring *ring);

/* Bytes that the kernel put into the AUX area so far. */
uint64_t ptw_ring_aux_head(const struct ptw_ring *ring);

/* How perf times become TSC ticks: 0, or -EOPNOTSUPP where the kernel does not say. */
struct ptw_time {
	uint64_t zero;
	uint32_t mult;
	uint16_t shift;
};
int ptw_ring_time(const struct ptw_ring *ring, struct ptw_time *ret);
/* cffi end */

#endif
