/* SPDX-License-Identifier: MIT */
#include "join.h"

#include <stddef.h>

enum {
	NUMBERS = 512,
	NUMBER_EXIT = 60,
	NUMBER_EXIT_GROUP = 231,
	ROWS_LOOKED_AT = 1 << 16,	/* for one call: keeps a log with absurd times from costing a square */
};

static const int64_t FAR = INT64_C(1) << 61;	/* times beyond it are cut: sums of a few of them do not overflow */

static int64_t cut(__int128 time)
{
	return time > FAR ? FAR : time < -FAR ? -FAR : (int64_t)time;
}

static int64_t to_ns(const struct ptw_clock *clock, uint64_t tsc)
{
	__int128 span = (__int128)clock->tsc1 - clock->tsc0;
	__int128 scaled;

	if (span <= 0)
		return cut(clock->t0);
	scaled = (__int128)cut((__int128)tsc - clock->tsc0) * cut((__int128)clock->t1 - clock->t0);
	/* rounded down, as Python's // does */
	return cut(clock->t0 + (scaled >= 0 ? scaled / span : -((-scaled + span - 1) / span)));
}

static int same(const struct ptw_join *join, const struct ptw_call *call, const struct ptw_row *row)
{
	unsigned int nargs = call->number < NUMBERS ? join->nargs[call->number] : 6;

	if (row->number < 0 || (uint32_t)row->number != call->number)
		return 0;
	for (unsigned int i = 0; i < nargs && i < 6; i++)
		if (row->args[i] != call->args[i])
			return 0;
	return 1;
}

/* A call the kernel may have been asked for as it is. The engine ends threads and processes in its own way. */
static int asked(const struct ptw_call *call)
{
	return !(call->flags & PTW_CALL_ANSWERED) || call->number == NUMBER_EXIT || call->number == NUMBER_EXIT_GROUP;
}

/* The interval of a call, on the rows' clock. */
struct interval {
	int64_t begin;
	int64_t end;	/* of the call; for one that never returned the beginning of the next */
	int64_t next;	/* beginning of the next */
};

static struct interval interval_of(const struct ptw_join *join, const struct ptw_call *call,
				   const struct ptw_call *next)
{
	struct interval interval;

	interval.begin = cut((__int128)to_ns(join->clock, call->tsc_enter) + join->shift);
	interval.next = next ? cut((__int128)to_ns(join->clock, next->tsc_enter) + join->shift) : FAR;
	interval.end = call->tsc_exit ? cut((__int128)to_ns(join->clock, call->tsc_exit) + join->shift)
				      : interval.next;
	return interval;
}

static int inside(const struct ptw_row *row, const struct interval *interval, int64_t slack)
{
	int64_t enter = cut(row->t_enter);
	int64_t exit = row->flags & PTW_ROW_RETURNED ? cut(row->t_exit) : enter;

	return enter >= interval->begin - slack && exit <= interval->end + slack;
}

/* The row of one call: the first equal one inside its interval, else one nearby that the next call cannot want. */
static int64_t find(const struct ptw_join *join, const struct ptw_call *call, const struct interval *interval,
		    const struct ptw_row *rows, uint64_t row_count, uint64_t from)
{
	uint64_t limit = row_count - from > ROWS_LOOKED_AT ? from + ROWS_LOOKED_AT : row_count;
	int64_t nearby = -1;

	for (uint64_t i = from; i < limit; i++) {
		int64_t enter = cut(rows[i].t_enter);

		if (enter > interval->end + join->tolerance)
			break;
		if (!same(join, call, &rows[i]))
			continue;
		if (inside(&rows[i], interval, join->slack))
			return (int64_t)i;
		if (nearby < 0 && enter < interval->next)
			nearby = (int64_t)i;
	}
	return nearby;
}

uint64_t ptw_join_calls(const struct ptw_join *join, const struct ptw_call *calls, uint64_t count,
			const struct ptw_call *next, const struct ptw_row *rows, uint64_t row_count,
			uint64_t *cursor, int64_t *match)
{
	uint64_t matched = 0;
	uint64_t at = *cursor;

	for (uint64_t i = 0; i < count; i++) {
		const struct ptw_call *after = i + 1 < count ? &calls[i + 1] : next;
		struct interval interval = interval_of(join, &calls[i], after);

		while (at < row_count && cut(rows[at].t_enter) < interval.begin - join->tolerance)
			at++;
		match[i] = -1;
		if (at < row_count && asked(&calls[i]))
			match[i] = find(join, &calls[i], &interval, rows, row_count, at);
		if (match[i] >= 0) {
			at = (uint64_t)match[i] + 1;
			matched++;
		}
	}
	*cursor = at;
	return matched;
}

void ptw_join_times(const struct ptw_clock *clock, const struct ptw_call *calls, uint64_t count, int64_t *t_enter,
		    int64_t *t_exit)
{
	for (uint64_t i = 0; i < count; i++) {
		t_enter[i] = to_ns(clock, calls[i].tsc_enter);
		t_exit[i] = calls[i].tsc_exit ? to_ns(clock, calls[i].tsc_exit) : 0;
	}
}
