/* SPDX-License-Identifier: MIT */
/* The tracepoint that vector_bench's peer logs: the same four fields. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER ptweave_bench

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./lttng_bench.h"

#if !defined(PTW_LTTNG_BENCH_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define PTW_LTTNG_BENCH_H

#include <lttng/tracepoint.h>

LTTNG_UST_TRACEPOINT_EVENT(
	ptweave_bench, insertion, LTTNG_UST_TP_ARGS(int64_t, index, uint64_t, thread, double, value, const char *, path),
	LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(int64_t, index, index)
				    lttng_ust_field_integer(uint64_t, thread, thread)
					    lttng_ust_field_float(double, value, value)
						    lttng_ust_field_string(path, path)))

#endif

#include <lttng/tracepoint-event.h>
