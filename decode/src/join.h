/* SPDX-License-Identifier: MIT */
/*
 * Joining one thread's log of system calls, which the soft engine wrote, with the kernel's record of the calls that
 * its task made. The log says which calls the program made; the kernel's record holds those and the engine's own.
 *
 * Both are in order, and a call of the program that the kernel was asked for lies, in the kernel's record, within the
 * log's interval for it, with the same number and arguments. So the join walks both once. It holds no state but the
 * cursor, allocates nothing, and trusts no value it reads.
 */
#ifndef PTW_JOIN_H
#define PTW_JOIN_H

#include <stdint.h>

/* cffi begin */
/* Flags of a logged call. */
enum ptw_call_flag {
	PTW_CALL_ANSWERED = 1,	/* the engine answered it without asking the kernel the same thing */
	PTW_CALL_RESTARTED = 2,	/* interrupted; its instruction is executed again, and logged again */
};

/* A record of trace/<thread>.sys: ptweave.data.syslog. */
struct ptw_call {
	uint64_t tsc_enter, tsc_exit;
	int64_t result;
	uint64_t ip;
	uint32_t number, flags;
	uint64_t args[6];
	uint64_t stream;
};

enum ptw_row_flag {
	PTW_ROW_RETURNED = 1,	/* t_exit and result hold */
};

/* A row of events/syscalls.arrow. */
struct ptw_row {
	int64_t t_enter, t_exit, result;
	uint64_t ip;
	uint64_t args[6];
	int32_t number, pid, tid;
	uint32_t flags;
	int64_t memory;		/* ordinal of what it has beside numbers; -1 none */
};

/* Two moments known on both clocks: ptweave.data.manifest.Clocks. */
struct ptw_clock {
	uint64_t tsc0, tsc1;
	int64_t t0, t1;
};

struct ptw_join {
	const struct ptw_clock *clock;
	const uint8_t *nargs;	/* arguments compared, by number, 512 of them; 6 for other numbers */
	int64_t shift;		/* what the kernel's clock is ahead of the log's, ns */
	int64_t slack;		/* a row so far outside a call's interval is still inside, ns */
	int64_t tolerance;	/* so far outside it is still the call's if no other wants it, ns */
};

/*
 * For each of `count` logged calls find its row: `match[i]` is the row's index, or -1. `next` is the call after the
 * last, NULL when there is none. `*cursor` is the first row not yet passed, and is moved on. Returns how many matched.
 */
uint64_t ptw_join_calls(const struct ptw_join *join, const struct ptw_call *calls, uint64_t count,
			const struct ptw_call *next, const struct ptw_row *rows, uint64_t row_count,
			uint64_t *cursor, int64_t *match);

/* Times of calls in ns, as Clocks.to_ns has them; 0 for a tsc_exit of 0. */
void ptw_join_times(const struct ptw_clock *clock, const struct ptw_call *calls, uint64_t count, int64_t *t_enter,
		    int64_t *t_exit);
/* cffi end */

#endif
