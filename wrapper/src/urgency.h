/* SPDX-License-Identifier: MIT */
/*
 * How urgently a ring is drained: the scheduling of the thread that does it. Of the calling thread alone: who is forked
 * from others keeps what it had.
 *
 * Usually it is a little above what is recorded. Not more: the kernel spreads threads over processors by weight, and a
 * thread of nice -20, even one that mostly sleeps, weighs so much that all others end up on one processor, the target
 * with the writer of our files. When the ring fills all the same, the thread goes before all others until it is calm
 * again, so that nothing gets lost on a machine that has much else to do.
 */
#ifndef PTW_URGENCY_H
#define PTW_URGENCY_H

#include <stdint.h>

/* How urgent it is; see above. */
struct ptw_urgency {
	uint64_t alarm;			/* bytes in the ring at which it goes before all others */
	uint64_t calm;			/* and at which it does not need to */
	unsigned int calm_turns;	/* turns in a row that were calm */
	int high;
};

/*
 * Where it is done: not on the processor of a thread that makes most of the records, which would have to wait meanwhile.
 * The kernel leaves us there, once we are: it prefers the processor where a thread ran last, or where it is woken from.
 */
struct ptw_place {
	int cpu;			/* since the begin of the window; -1: nothing is known yet */
	uint64_t made_here;		/* records made on it before */
	uint64_t made;			/* records made on all processors before */
};

/* `wake_bytes`: what wakes the thread; `ring_bytes`: what there is room for. What the kernel refuses stays as it is. */
void ptw_urgency_init(struct ptw_urgency *urgency, uint64_t wake_bytes, uint64_t ring_bytes);

/* A turn begins, with so many bytes in the ring. */
void ptw_urgency_turn(struct ptw_urgency *urgency, uint64_t used);

void ptw_place_init(struct ptw_place *place);

/*
 * Move to another processor when more than half of the records were made on this one lately. `made`: records so far;
 * `made_on(context, cpu)`: those made on a processor. Returns 1 when it moved.
 */
int ptw_place_turn(struct ptw_place *place, uint64_t made, uint64_t (*made_on)(const void *context, unsigned int cpu),
		   const void *context);

#endif
