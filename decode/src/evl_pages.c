/* SPDX-License-Identifier: MIT */
/* Accesses; evl_pages.h says what is guaranteed. */
#include "evl_pages.h"

#include "evl_commit.h"
#include "evl_operation.h"
#include "grow.h"

#include <string.h>

enum { READING = 0, WRITING = 1, FIRST_SLOTS = 256 };

void evl_pages_deinit(struct evl_pages *p)
{
	void *columns[] = {p->open, p->slots, p->thunk, p->stack_offsets, p->operation, p->tsc, p->address, p->argument,
			   p->stack, p->t, p->result, p->run_offsets, p->run, p->span_record, p->span_page, p->span_thunk, p->span_until, p->span_write};
	for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
		free(columns[i]);
	*p = (struct evl_pages){0};
}

/* --- the rows --- */

static int reserve_record(struct evl_pages *p)
{
	if (p->rows == p->row_capacity) {
		uint32_t n = p->row_capacity ? p->row_capacity * 2 : 64;
		if (ptd_grow(&p->thunk, n, sizeof *p->thunk) || ptd_grow(&p->operation, n, sizeof *p->operation) ||
		    ptd_grow(&p->tsc, n, sizeof *p->tsc) || ptd_grow(&p->t, n, sizeof *p->t) ||
		    ptd_grow(&p->address, n, sizeof *p->address) || ptd_grow(&p->argument, n, sizeof *p->argument) ||
		    ptd_grow(&p->result, n, sizeof *p->result) ||
		    ptd_grow(&p->run_offsets, n + 1, sizeof *p->run_offsets) ||
		    ptd_grow(&p->stack_offsets, n + 1, sizeof *p->stack_offsets))
			return -ENOMEM;
		p->row_capacity = n;
	}
	return 0;
}

static int add_stack(struct evl_pages *p, const struct evl_record *r)
{
	if (p->stacks + r->frames > p->stack_capacity) {
		uint64_t n = (p->stacks + r->frames) * 2 + 64;
		if (ptd_grow(&p->stack, n, sizeof *p->stack))
			return -ENOMEM;
		p->stack_capacity = n;
	}
	if (r->frames)
		memcpy(p->stack + p->stacks, r->stack, r->frames * sizeof *p->stack);
	p->stacks += r->frames;
	return 0;
}

static int add_runs(struct evl_pages *p, const uint32_t *runs, uint32_t count)
{
	if (p->runs + count > p->run_capacity) {
		uint64_t n = (p->runs + count) * 2 + 64;
		if (ptd_grow(&p->run, n, sizeof *p->run))
			return -ENOMEM;
		p->run_capacity = n;
	}
	memcpy(p->run + p->runs, runs, count * sizeof *runs);
	p->runs += count;
	return 0;
}

static int add_record(struct evl_pages *p, const struct evl_record *r, int32_t thunk, int64_t t)
{
	uint32_t runs[EVL_RUNS_MAX];
	int commit = r->operation == EVL_OP_ACCESS_COMMIT ? evl_commit_runs(r, runs) : 0;
	if (reserve_record(p) < 0)
		return -ENOMEM;
	uint32_t n = p->rows;
	p->stack_offsets[n] = (int32_t)p->stacks;
	p->run_offsets[n] = (int32_t)p->runs;
	if (commit > 0 ? add_runs(p, runs, (uint32_t)commit) < 0 : add_stack(p, r) < 0)
		return -ENOMEM;
	p->rows = n + 1;
	p->thunk[n] = thunk;
	p->operation[n] = r->operation;
	p->tsc[n] = r->enter;
	p->t[n] = t;
	p->address[n] = r->object;
	p->argument[n] = r->argument;
	p->result[n] = r->result;
	p->run_offsets[n + 1] = (int32_t)p->runs;
	p->stack_offsets[n + 1] = (int32_t)p->stacks;
	p->records++;
	return 0;
}

static int add_span(struct evl_pages *p, uint64_t page, bool write, int64_t record, int32_t thunk, int32_t until)
{
	if (p->spans == p->span_capacity) {
		uint32_t n = p->span_capacity ? p->span_capacity * 2 : 256;
		if (ptd_grow(&p->span_record, n, sizeof *p->span_record) ||
		    ptd_grow(&p->span_page, n, sizeof *p->span_page) ||
		    ptd_grow(&p->span_thunk, n, sizeof *p->span_thunk) ||
		    ptd_grow(&p->span_until, n, sizeof *p->span_until) ||
		    ptd_grow(&p->span_write, n, sizeof *p->span_write))
			return -ENOMEM;
		p->span_capacity = n;
	}
	uint32_t n = p->spans++;
	p->span_record[n] = record;
	p->span_page[n] = page;
	p->span_thunk[n] = thunk;
	p->span_until[n] = until;
	p->span_write[n] = write;
	return 0;
}

/* --- what is open --- */

static uint32_t home(const struct evl_pages *p, uint64_t page)
{
	return (uint32_t)((page / EVL_PAGE * 0x9e3779b97f4a7c15u) >> 32) & (p->slot_count - 1);
}

/* The slot that holds the page, or the free one where it would go. */
static uint32_t slot_of(const struct evl_pages *p, uint64_t page)
{
	uint32_t at = home(p, page);
	while (p->slots[at] && p->open[p->slots[at] - 1].page != page)
		at = (at + 1) & (p->slot_count - 1);
	return at;
}

static int widen(struct evl_pages *p)
{
	uint32_t capacity = p->capacity ? p->capacity * 2 : FIRST_SLOTS / 2;
	if (ptd_grow(&p->open, capacity, sizeof *p->open))
		return -ENOMEM;
	uint32_t *slots = calloc((size_t)capacity * 2, sizeof *slots);
	if (!slots)
		return -ENOMEM;
	free(p->slots);
	p->slots = slots;
	p->capacity = capacity;
	p->slot_count = capacity * 2;
	for (uint32_t i = 0; i < p->count; i++)
		p->slots[slot_of(p, p->open[i].page)] = i + 1;
	return 0;
}

/* Free a slot, and move up those that were put behind it because it was taken. */
static void vacate(struct evl_pages *p, uint32_t slot)
{
	uint32_t mask = p->slot_count - 1;
	for (uint32_t at = (slot + 1) & mask; p->slots[at]; at = (at + 1) & mask) {
		uint32_t wanted = home(p, p->open[p->slots[at] - 1].page);
		if (((at - wanted) & mask) >= ((at - slot) & mask)) {
			p->slots[slot] = p->slots[at];
			slot = at;
		}
	}
	p->slots[slot] = 0;
}

static void forget(struct evl_pages *p, uint32_t index)
{
	vacate(p, slot_of(p, p->open[index].page));
	if (index != --p->count) {
		p->slots[slot_of(p, p->open[p->count].page)] = index + 1;
		p->open[index] = p->open[p->count];
	}
}

static int close_span(struct evl_pages *p, struct evl_open *open, int kind, int32_t until)
{
	if (open->record[kind] < 0)
		return 0;
	int error = add_span(p, open->page, kind == WRITING, open->record[kind], open->thunk[kind], until);
	open->record[kind] = -1;
	return error;
}

static int close_index(struct evl_pages *p, uint32_t index, int32_t until)
{
	int error = close_span(p, &p->open[index], READING, until);
	if (!error)
		error = close_span(p, &p->open[index], WRITING, until);
	forget(p, index);
	return error;
}

int evl_pages_end(struct evl_pages *p, int32_t until)
{
	int error = 0;
	while (p->count && !error)
		error = close_index(p, p->count - 1, until);
	return error;
}

static int open_page(struct evl_pages *p, uint64_t page, int kind, int64_t record, int32_t thunk)
{
	if (p->count == p->capacity && p->count < EVL_OPEN_MAX && widen(p) < 0)
		return -ENOMEM;
	uint32_t slot = slot_of(p, page);
	if (!p->slots[slot]) {
		if (p->count == EVL_OPEN_MAX)
			return add_span(p, page, kind == WRITING, record, thunk, EVL_TO_THE_END);
		p->open[p->count] = (struct evl_open){.page = page, .record = {-1, -1}};
		p->slots[slot] = ++p->count;
	}
	struct evl_open *open = &p->open[p->slots[slot] - 1];
	int error = close_span(p, open, kind, thunk);
	open->record[kind] = record;
	open->thunk[kind] = thunk;
	return error;
}

/* `count` pages from `page`; the fewer of them and of those that are open are looked through. */
static int close_range(struct evl_pages *p, uint64_t page, uint64_t count, int32_t until)
{
	int error = 0;
	if (count > p->count) {
		for (uint32_t i = p->count; i-- > 0 && !error;)
			if (p->open[i].page >= page && (p->open[i].page - page) / EVL_PAGE < count)
				error = close_index(p, i, until);
		return error;
	}
	for (uint64_t i = 0; i < count && !error && p->count; i++) {
		uint32_t slot = slot_of(p, page + i * EVL_PAGE);
		if (p->slots[slot])
			error = close_index(p, p->slots[slot] - 1, until);
	}
	return error;
}

/* --- records --- */

bool evl_pages_valid(const struct evl_record *r)
{
	uint32_t runs[EVL_RUNS_MAX];
	switch (r->operation) {
	case EVL_OP_ACCESS_READ:
	case EVL_OP_ACCESS_WRITE:
		return r->argument <= EVL_WINDOW_MAX && r->object <= UINT64_MAX - EVL_WINDOW_MAX * (uint64_t)EVL_PAGE;
	case EVL_OP_ACCESS_COMMIT:
		return evl_commit_runs(r, runs) > 0;
	default:
		return true;
	}
}

int evl_pages_take(struct evl_pages *p, const struct evl_record *r, int32_t thunk, int64_t t)
{
	uint64_t page = r->object & ~(uint64_t)(EVL_PAGE - 1);
	int64_t number = p->records;
	int error = add_record(p, r, thunk, t);
	switch (r->operation) {
	case EVL_OP_ACCESS_READ:
	case EVL_OP_ACCESS_WRITE:
		for (uint64_t i = 0; !error && i < (r->argument ? r->argument : 1); i++)
			error = open_page(p, page + i * EVL_PAGE,
					  r->operation == EVL_OP_ACCESS_WRITE ? WRITING : READING, number, thunk);
		return error;
	case EVL_OP_ACCESS_END:
		if (error)
			return error;
		return r->argument ? close_range(p, page, r->argument, thunk) : evl_pages_end(p, thunk);
	case EVL_OP_ACCESS_COMMIT:
		return error ? error : add_span(p, page, true, number, thunk, thunk);
	default:
		return error;
	}
}

/* --- batches --- */

uint64_t evl_pages_bytes(const struct evl_pages *p)
{
	return p->rows * 54ull + p->stacks * sizeof *p->stack + p->runs * sizeof *p->run + p->spans * 25ull;
}

void evl_pages_batch(const struct evl_pages *p, int32_t thread, struct evl_accesses *ret)
{
	*ret = (struct evl_accesses){
		.thread = thread,
		.rows = p->rows,
		.first = p->first,
		.thunk = p->thunk,
		.operation = p->operation,
		.tsc = p->tsc,
		.t = p->t,
		.address = p->address,
		.argument = p->argument,
		.result = p->result,
		.run_offsets = p->run_offsets,
		.run = p->run,
		.stack_offsets = p->stack_offsets,
		.stack = p->stack,
		.pages = p->spans,
		.page_record = p->span_record,
		.page = p->span_page,
		.page_thunk = p->span_thunk,
		.page_until = p->span_until,
		.page_write = p->span_write,
	};
}

void evl_pages_clear(struct evl_pages *p)
{
	p->first = p->records;
	p->rows = p->spans = 0;
	p->stacks = p->runs = 0;
}
