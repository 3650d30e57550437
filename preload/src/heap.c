/* SPDX-License-Identifier: MIT */
/* The allocator; heap.h says what is guaranteed. */
#define _GNU_SOURCE
#include "heap.h"

#include "allocation.h"
#include "shared_lock.h"
#include "slots.h"
#include "units.h"
#include "view.h"

enum {
	SMALL_STEP = 16,
	SMALL_LINEAR = 128, /* below, classes are 16 bytes apart; above, four to a doubling */
	SMALL_MAX = 32768,
	CLASSES = 8 + 4 * 8,
	SPAN_LARGE = 8192, /* blocks above get spans of four units */
};

struct class_list {
	uint32_t free;   /* granule + 1 */
	uint32_t remote; /* pushed by others */
	uint32_t bump;   /* granule of the next block never used */
	uint32_t end;
};

struct heap {
	struct class_list list[CLASSES];
	uint32_t fresh[CLASSES]; /* the span being bumped was all zeros when it was taken */
	uint32_t lock;
};
_Static_assert(sizeof(struct heap) <= 4096, "heaps lie a page apart");

#define links ((uint32_t *)PTW_META_LINKS)

static struct heap *heap_of(uint32_t slot) { return (struct heap *)(PTW_META_HEAPS + slot * 4096ull); }

static uint32_t class_of(size_t size)
{
	if (size <= SMALL_LINEAR)
		return size ? (uint32_t)((size - 1) / SMALL_STEP) : 0;
	uint32_t shift = 63u - (uint32_t)__builtin_clzll(size - 1); /* size in (2^shift, 2^(shift+1)] */
	uint32_t quarter = (uint32_t)((size - 1) >> (shift - 2)) & 3;
	return 8 + (shift - 7) * 4 + quarter;
}

static size_t class_size(uint32_t class)
{
	if (class < 8)
		return (class + 1) * SMALL_STEP;
	size_t base = (size_t)SMALL_LINEAR << ((class - 8) / 4);
	return base + base / 4 * ((class - 8) % 4 + 1);
}

static uint64_t address_of(uint32_t granule) { return PTW_HEAP + granule * PTW_GRANULE; }
static uint32_t granule_of(uint64_t address) { return (uint32_t)((address - PTW_HEAP) / PTW_GRANULE); }

static void lock(struct heap *heap)
{
	if (!ptw_process_mode)
		ptw_lock(&heap->lock);
}

static void unlock(struct heap *heap)
{
	if (!ptw_process_mode)
		ptw_unlock(&heap->lock);
}

static bool new_span(struct heap *heap, uint32_t class)
{
	uint32_t count = class_size(class) > SPAN_LARGE ? 4 : 1, first = ptw_units_take(count, false);
	if (first == UINT32_MAX)
		return false;
	heap->fresh[class] = 1;
	for (uint32_t i = 0; i < count; i++) {
		struct ptw_unit *unit = &ptw_units[first + i];
		heap->fresh[class] &= !unit->dirty;
		unit->owner = (uint16_t)ptw_slot_index;
		unit->run = i;
		__atomic_store_n(&unit->kind, (uint8_t)(class + 1), __ATOMIC_RELEASE);
	}
	heap->list[class].bump = granule_of(ptw_unit_address(first));
	heap->list[class].end = granule_of(ptw_unit_address(first + count));
	ptw_allocation_log(ptw_unit_address(first), count * PTW_UNIT);
	return true;
}

static void *small(uint32_t class, bool *fresh)
{
	struct heap *heap = heap_of(ptw_slot_index);
	struct class_list *list = &heap->list[class];
	uint32_t size = (uint32_t)(class_size(class) / PTW_GRANULE), granule = 0;
	lock(heap);
	if (!list->free && __atomic_load_n(&list->remote, __ATOMIC_RELAXED)) {
		list->free = __atomic_exchange_n(&list->remote, 0, __ATOMIC_ACQUIRE);
		if (ptw_private) /* what others left in them */
			ptw_view_boundary();
	}
	bool zeros = false, found = true;
	if (list->free) {
		granule = list->free - 1;
		list->free = links[granule];
	} else if (list->end - list->bump >= size || (found = new_span(heap, class))) {
		granule = list->bump;
		list->bump += size;
		zeros = heap->fresh[class];
	}
	unlock(heap);
	if (fresh)
		*fresh = zeros;
	return found ? (void *)address_of(granule) : NULL;
}

static void *large(size_t size, bool *fresh)
{
	uint32_t first = UINT32_MAX;
	if (size <= PTW_NEAR_SIZE)
		first = ptw_units_take((uint32_t)((size + PTW_UNIT - 1) / PTW_UNIT), fresh != NULL);
	if (fresh)
		*fresh = true;
	if (first == UINT32_MAX)
		return NULL;
	ptw_units[first].kind = PTW_UNIT_BLOCK;
	ptw_allocation_log(ptw_unit_address(first), size);
	return (void *)ptw_unit_address(first);
}

void *ptw_heap_take(size_t size, bool *fresh)
{
	return size <= SMALL_MAX ? small(class_of(size), fresh) : large(size, fresh);
}

/* A run whose first unit lies at a multiple of `alignment`, beyond a unit's. */
static void *large_aligned(size_t alignment, size_t size)
{
	if (size > PTW_NEAR_SIZE || alignment > PTW_NEAR_SIZE)
		return NULL;
	uint32_t wanted = (uint32_t)((size + PTW_UNIT - 1) / PTW_UNIT), step = (uint32_t)(alignment / PTW_UNIT);
	wanted += wanted == 0;
	uint32_t first = ptw_units_take(wanted + step - 1, false);
	if (first == UINT32_MAX)
		return NULL;
	uint64_t address = (ptw_unit_address(first) + alignment - 1) & ~(uint64_t)(alignment - 1);
	uint32_t before = ptw_unit_of(address) - first, after = step - 1 - before;
	ptw_units[first + before].kind = PTW_UNIT_BLOCK;
	ptw_units[first + before].run = wanted;
	if (before)
		ptw_units_give(first, before);
	if (after)
		ptw_units_give(first + before + wanted, after);
	ptw_allocation_log(address, size);
	return (void *)address;
}

void *ptw_heap_take_aligned(size_t alignment, size_t size)
{
	if (alignment <= PTW_GRANULE)
		return ptw_heap_take(size, NULL);
	if (alignment <= PTW_PAGE && size <= SMALL_MAX) {
		size_t power = SMALL_LINEAR; /* blocks of a power of two lie at multiples of it */
		while (power < size || power < alignment)
			power *= 2;
		if (power <= SMALL_MAX)
			return small(class_of(power), NULL);
	}
	if (alignment <= PTW_UNIT)
		return large(size ? size : 1, NULL);
	return large_aligned(alignment, size);
}

static bool is_span(const struct ptw_unit *unit)
{
	return unit->kind != PTW_UNIT_NEVER && unit->kind < PTW_UNIT_BLOCK;
}

static void give_small(uint64_t address, const struct ptw_unit *unit)
{
	struct heap *heap = heap_of(unit->owner);
	struct class_list *list = &heap->list[unit->kind - 1];
	uint32_t granule = granule_of(address);
	if (ptw_private)
		ptw_view_give(address, class_size(unit->kind - 1u), unit->owner != ptw_slot_index);
	if (unit->owner == ptw_slot_index) {
		lock(heap);
		links[granule] = list->free;
		list->free = granule + 1;
		unlock(heap);
		return;
	}
	uint32_t head = __atomic_load_n(&list->remote, __ATOMIC_RELAXED);
	do
		links[granule] = head;
	while (!__atomic_compare_exchange_n(&list->remote, &head, granule + 1, true, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED));
}

bool ptw_heap_give(void *block)
{
	uint64_t address = (uint64_t)block;
	if (address - PTW_HEAP >= PTW_HEAP_SIZE)
		return false;
	struct ptw_unit *unit = &ptw_units[ptw_unit_of(address)];
	if (unit->kind == PTW_UNIT_BLOCK)
		ptw_units_give(ptw_unit_of(address), unit->run);
	else if (is_span(unit))
		give_small(address, unit);
	else
		return false;
	return true;
}

size_t ptw_heap_size(const void *block)
{
	uint64_t address = (uint64_t)block;
	if (address - PTW_HEAP >= PTW_HEAP_SIZE)
		return 0;
	const struct ptw_unit *unit = &ptw_units[ptw_unit_of(address)];
	if (unit->kind == PTW_UNIT_BLOCK)
		return unit->run * PTW_UNIT;
	return is_span(unit) ? class_size(unit->kind - 1u) : 0;
}

bool ptw_heap_resize(void *block, size_t size)
{
	uint64_t address = (uint64_t)block;
	const struct ptw_unit *unit = &ptw_units[ptw_unit_of(address)];
	size_t now = ptw_heap_size(block);
	if (size <= now && (size >= now / 2 || now <= 64))
		return true;
	if (unit->kind != PTW_UNIT_BLOCK || size <= SMALL_MAX || size > PTW_NEAR_SIZE)
		return false;
	uint32_t first = ptw_unit_of(address), wanted = (uint32_t)((size + PTW_UNIT - 1) / PTW_UNIT), run = unit->run;
	if (wanted < run) {
		ptw_units[first].run = wanted;
		ptw_units_give(first + wanted, run - wanted);
		return true;
	}
	return wanted == run || ptw_units_extend(first, run, wanted);
}
