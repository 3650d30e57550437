/* SPDX-License-Identifier: MIT */
/* Accesses in the event lists; the records are described in data/ptweave/data/evl.py. Signal-safe. */
#define _GNU_SOURCE
#include "access.h"

#include "diff.h"
#include "process.h"
#include "view.h"

_Static_assert((int)PTW_DIFF_WORDS <= (int)PTW_MAX_FRAMES, "a commit's bytes find room in a record");

static bool on_own_stack(uint64_t sp)
{
	const struct ptw_slot *slot = ptw_slot();
	return sp - slot->stack < slot->stack_size;
}

static bool logging(void) { return ptw_tracing() && ptw_self.state == PTW_THREAD_TRACED; }

static bool passed_through(uint64_t address)
{
	uint32_t page = ptw_private ? ptw_page_of(address) : PTW_PAGE_NONE;
	return page < PTW_MEMFD_PAGES && (ptw_page_traits[page] & PTW_PASSED);
}

/* Elsewhere (another stack, made by the program itself) unwinding might fault, and that within a fault. */
static void put(enum ptw_operation operation, uint64_t address, uint64_t pages, const struct ptw_frame *frame)
{
	uint64_t stack[PTW_MAX_FRAMES], now = ptw_tsc();
	if (!logging())
		return;
	struct ptw_record record = {
		.operation = (uint16_t)operation,
		.tsc_enter = now,
		.tsc_exit = now,
		.object = address,
		.result = passed_through(address),
		.argument = pages,
	};
	if (frame && on_own_stack(frame->sp)) {
		record.frames = (uint16_t)ptw_unwind(frame, ptw_self.top, stack, PTW_MAX_FRAMES);
	} else if (frame) {
		record.frames = 1;
		stack[0] = frame->pc;
	}
	ptw_writer_put(&ptw_self.writer, &record, stack);
}

void ptw_access_log(uint64_t address, uint32_t pages, bool write, const struct ptw_frame *frame)
{
	put(write ? PTW_ACCESS_WRITE : PTW_ACCESS_READ, address, pages, frame);
}

void ptw_access_log_end(uint64_t address, uint32_t pages) { put(PTW_ACCESS_END, address, pages, NULL); }

void ptw_access_log_commit(uint64_t address, uint32_t version, uint32_t changed, const struct ptw_diff *diff)
{
	uint64_t runs[PTW_DIFF_WORDS], now = ptw_tsc();
	if (!logging())
		return;
	uint32_t count = ptw_diff_runs(diff, runs);
	struct ptw_record record = {
		.operation = PTW_ACCESS_COMMIT,
		.frames = (uint16_t)(count ? (count + 1) / 2 : PTW_DIFF_WORDS),
		.tsc_enter = now,
		.tsc_exit = now,
		.object = address,
		.result = count,
		.object_version = version,
		.argument = changed,
	};
	ptw_writer_put(&ptw_self.writer, &record, count ? runs : diff->bits);
}
