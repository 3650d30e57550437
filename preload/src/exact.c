/* SPDX-License-Identifier: MIT */
/*
 * Exact sets: what a thunk opened is closed at its end, so that every thunk faults for its own.
 *
 * But for one page: a thunk of the program ends with a call, and the call reads its address from a linkage page. So that
 * is read in every thunk, and once read it stays readable, and every thunk is said to read it. A thunk that touches
 * nothing else costs no fault.
 */
#define _GNU_SOURCE
#include "access.h"
#include "segments.h"

#define opened ((uint32_t *)PTW_OWN_OPENED)
#define OPENED_MAX (PTW_OWN_OPENED_SIZE / sizeof(uint32_t))

enum { STANDING = 16 };

static PTW_CHANGING uint64_t count;

/* Linkage pages that are open for reading, or were when this thunk wrote to them. */
static PTW_CHANGING uint32_t standing[STANDING];
PTW_CHANGING uint32_t ptw_exact_standing;

/* Pages of the stack that are open since the boundary, from `stack_page` on. */
static PTW_CHANGING uint32_t stack_page;
PTW_CHANGING uint32_t ptw_exact_stack;

void ptw_exact_begin(void) { count = ptw_exact_standing = ptw_exact_stack = 0; }

/* True: it stays open. */
static bool stand(uint32_t page)
{
	for (uint32_t i = 0; i < ptw_exact_standing; i++)
		if (standing[i] == page)
			return true;
	if (ptw_exact_standing == STANDING)
		return false;
	standing[ptw_exact_standing++] = page;
	return true;
}

void ptw_exact_opened(uint32_t page, uint32_t pages, bool write)
{
	/* a page that was read before is in the list already; twice does not harm */
	for (uint32_t i = page; i < page + pages && count < OPENED_MAX; i++)
		if (write || !ptw_segments_linkage(i) || !stand(i))
			opened[count++] = i;
}

void ptw_exact_stack_opened(uint32_t page, uint32_t pages)
{
	stack_page = page;
	ptw_exact_stack = pages;
}

static void log_stack(bool begins)
{
	for (uint32_t page = stack_page; page < stack_page + ptw_exact_stack; page++) {
		if (ptw_page_states[page] != PTW_WRITE)
			continue; /* another's, or the program may not write there */
		if (begins)
			ptw_access_log(ptw_page_address(page), 1, true, NULL);
		else
			ptw_access_log_end(ptw_page_address(page), 1);
	}
}

void ptw_exact_thunk_begins(void)
{
	for (uint32_t i = 0; i < ptw_exact_standing; i++)
		ptw_access_log(ptw_page_address(standing[i]), 1, false, NULL);
	log_stack(true);
}

void ptw_exact_thunk_ends(void)
{
	for (uint32_t i = 0; i < ptw_exact_standing; i++)
		ptw_access_log_end(ptw_page_address(standing[i]), 1);
	log_stack(false);
}

void ptw_exact_boundary(void)
{
	uint64_t mask;
	ptw_exact_stack = 0;
	if (count == 0)
		return;
	ptw_block_signals(&mask);
	ptw_pages_close(opened, (uint32_t)count);
	count = 0;
	for (uint32_t i = 0; i < ptw_exact_standing; i++) /* what was written was closed with the rest */
		if (ptw_page_states[standing[i]] == PTW_CLOSED)
			ptw_pages_set(standing[i], 1, PTW_READ);
	ptw_access_log_end(0, 0);
	ptw_exact_thunk_begins(); /* not quite: until the thunk's record is logged they belong to the one before */
	ptw_restore_signals(&mask);
}
