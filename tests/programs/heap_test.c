/* SPDX-License-Identifier: MIT */
/* The allocator of process mode, without the rest: spans, runs, remote frees, the untracked heap. */
#define _GNU_SOURCE
#include "allocation.h"
#include "check.h"
#include "heap.h"
#include "region.h"
#include "slots.h"
#include "units.h"
#include "view.h"

#include <string.h>

/* The shared view: none of these is called. */
bool ptw_private;
static void never(uint64_t start, uint64_t size) { CHECK(start == size && false); }
void ptw_view_boundary(void) { never(0, 0); }
void ptw_view_give(uint64_t address, uint64_t size, bool away) { never(address, size + away); }
void ptw_view_lose(uint64_t start, uint64_t size) { never(start, size); }
void ptw_view_changed(uint64_t start, uint64_t size) { never(start, size); }

__thread uint32_t ptw_slot_index __attribute__((tls_model("initial-exec")));
bool ptw_process_mode;

void ptw_allocation_log(uint64_t address, uint64_t size) { (void)address, (void)size; }

enum { BLOCKS = 4000 };

static size_t some_size(uint32_t *seed)
{
	*seed = *seed * 1664525 + 1013904223;
	return *seed >> 28 ? (*seed >> 8) % 3000 : (*seed >> 8) % 300000;
}

static void blocks_do_not_overlap(void)
{
	static unsigned char *block[BLOCKS];
	static size_t size[BLOCKS];
	uint32_t seed = 1;
	for (unsigned round = 0; round < 20000; round++) {
		unsigned i = round % BLOCKS;
		for (size_t k = 0; block[i] && k < size[i]; k += 97)
			CHECK(block[i][k] == (unsigned char)i);
		ptw_heap_give(block[i]);
		size[i] = some_size(&seed);
		block[i] = ptw_heap_take(size[i], NULL);
		CHECK(block[i] && (uint64_t)block[i] % 16 == 0 && ptw_heap_size(block[i]) >= size[i]);
		memset(block[i], (int)i, size[i]);
	}
}

static void what_is_said_to_be_fresh_is_zero(void)
{
	for (unsigned round = 0; round < 300; round++) {
		bool fresh = false;
		size_t size = 16 + round * 977;
		unsigned char *block = ptw_heap_take(size, &fresh);
		for (size_t i = 0; fresh && i < size; i++)
			CHECK(block[i] == 0);
		memset(block, 255, size);
		ptw_heap_give(block);
	}
}

static void slots_keep_off_each_others_pages(void)
{
	uint64_t mine = (uint64_t)ptw_heap_take(100, NULL);
	ptw_slot_index = 1;
	uint64_t other = (uint64_t)ptw_heap_take(100, NULL);
	ptw_slot_index = 0;
	CHECK(mine / PTW_UNIT != other / PTW_UNIT);
}

static void a_block_freed_by_another_comes_back_to_its_owner(void)
{
	void *block = ptw_heap_take(5000, NULL), *again = NULL;
	ptw_slot_index = 1;
	ptw_heap_give(block);
	CHECK(ptw_heap_take(5000, NULL) != block);
	ptw_slot_index = 0;
	for (unsigned i = 0; i < 100 && again != block; i++)
		again = ptw_heap_take(5000, NULL);
	CHECK(again == block);
}

static void alignment_is_kept(void)
{
	for (size_t alignment = 16; alignment <= 4 << 20; alignment *= 2) {
		void *block = ptw_heap_take_aligned(alignment, 1000), *other = ptw_heap_take_aligned(alignment, 70000);
		CHECK(block && (uint64_t)block % alignment == 0 && ptw_heap_size(block) >= 1000);
		CHECK(other && (uint64_t)other % alignment == 0 && ptw_heap_size(other) >= 70000);
		ptw_heap_give(block);
		ptw_heap_give(other);
	}
}

static void free_neighbours_are_joined(void)
{
	uint32_t first = ptw_units_take(10, false), second = ptw_units_take(10, false), third = ptw_units_take(10, false);
	CHECK(second == first + 10 && third == second + 10);
	ptw_units_take(1, false); /* not at the end */
	ptw_units_give(first, 10);
	ptw_units_give(third, 10);
	ptw_units_give(second, 10);
	CHECK(ptw_units_take(30, false) == first);
}

static void a_run_can_be_cut(void)
{
	uint32_t first = ptw_units_take(9, true);
	ptw_units_cut(first + 3, 3);
	CHECK(ptw_units[first].run == 3 && ptw_units[first + 6].run == 3 && ptw_units[first + 6].kind == PTW_UNIT_RUN);
	CHECK(ptw_units_take(3, true) == first + 3);
}

static void what_is_no_block_is_left(void)
{
	uint32_t first = ptw_units_take(40, true);
	uint64_t address = ptw_unit_address(first);
	CHECK(!ptw_heap_give((void *)address) && !ptw_heap_give((void *)(address + 1088)) &&
	      !ptw_heap_give((void *)(address + PTW_UNIT)) && !ptw_heap_give(NULL));
	CHECK(ptw_heap_size((void *)address) == 0 && ptw_units[first].run == 40);
	void *block = ptw_heap_take(40 * PTW_UNIT, NULL);
	CHECK(ptw_heap_size(block) == 40 * PTW_UNIT && ptw_heap_give(block) && !ptw_heap_give(block));
	ptw_units_give(first, 40);
}

static void what_does_not_fit_is_refused(void)
{
	CHECK(ptw_heap_take(PTW_HEAP_SIZE + 1, NULL) == NULL && ptw_heap_take(SIZE_MAX, NULL) == NULL);
	CHECK(ptw_heap_take_aligned(SIZE_MAX / 2 + 1, 10) == NULL);
	CHECK(ptw_units_take(PTW_UNITS + 1, false) == UINT32_MAX);
	CHECK(ptw_open_take(SIZE_MAX - 10) == NULL);
}

static void the_untracked_heap_reuses(void)
{
	void *block = ptw_open_take(1000);
	CHECK(block && ptw_open_size(block) >= 1000 && ptw_in_open_heap((uint64_t)block));
	ptw_open_give(block);
	CHECK(ptw_open_take(1000) == block);
}

#define CASE(name) {#name, name}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	CASE(blocks_do_not_overlap),
	CASE(what_is_said_to_be_fresh_is_zero),
	CASE(slots_keep_off_each_others_pages),
	CASE(a_block_freed_by_another_comes_back_to_its_owner),
	CASE(alignment_is_kept),
	CASE(free_neighbours_are_joined),
	CASE(a_run_can_be_cut),
	CASE(what_is_no_block_is_left),
	CASE(what_does_not_fit_is_refused),
	CASE(the_untracked_heap_reuses),
};

int main(int count, char **words)
{
	CHECK(ptw_region_init() == 0);
	for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		if (count < 2)
			puts(cases[i].name);
		else if (strcmp(words[1], cases[i].name) == 0)
			cases[i].run();
	}
	return 0;
}
