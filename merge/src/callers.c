/* SPDX-License-Identifier: MIT */
/* Interning lists of return addresses. The table doubles when it is half full. */
#include "callers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_ITEMS = 1024 };

int ptm_callers_create(struct ptm_callers **ret)
{
	struct ptm_callers *callers = calloc(1, sizeof(*callers));

	if (!callers)
		return -ENOMEM;
	callers->room = FIRST_ITEMS;
	callers->n_slots = 2 * FIRST_ITEMS;
	callers->items = malloc(callers->room * sizeof(*callers->items));
	callers->slots = calloc(callers->n_slots, sizeof(*callers->slots));
	if (!callers->items || !callers->slots) {
		ptm_callers_destroy(callers);
		return -ENOMEM;
	}
	*ret = callers;
	return 0;
}

void ptm_callers_destroy(struct ptm_callers *callers)
{
	if (!callers)
		return;
	free(callers->items);
	free(callers->slots);
	free(callers);
}

static size_t hash(const struct ptm_returns *item)
{
	uint64_t h = item->known;

	for (size_t i = 0; i < PTM_RETURNS; i++) {
		h = (h ^ item->returns[i]) * 0x9e3779b97f4a7c15u;
		h ^= h >> 29;
	}
	return (size_t)h;
}

/* The slot that holds the list, or the free one where it would go. */
static uint32_t *find(const struct ptm_callers *callers, const struct ptm_returns *item)
{
	for (size_t i = hash(item) & (callers->n_slots - 1);; i = (i + 1) & (callers->n_slots - 1)) {
		uint32_t *slot = &callers->slots[i];

		if (!*slot || !memcmp(&callers->items[*slot - 1], item, sizeof(*item)))
			return slot;
	}
}

static int grow(struct ptm_callers *callers)
{
	const size_t room = 2 * callers->room;
	struct ptm_returns *items;
	uint32_t *slots;

	if (room > INT32_MAX)
		return -ENOMEM;
	items = realloc(callers->items, room * sizeof(*items));
	if (!items)
		return -ENOMEM;
	callers->items = items;
	slots = calloc(2 * room, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	free(callers->slots);
	callers->slots = slots;
	callers->n_slots = 2 * room;
	callers->room = room;
	for (size_t i = 0; i < callers->n; i++)
		*find(callers, &items[i]) = (uint32_t)i + 1;
	return 0;
}

int callers_number(struct ptm_callers *callers, const struct ptm_returns *item, uint32_t *ret)
{
	uint32_t *slot = find(callers, item);

	if (!*slot && callers->n == callers->room) {
		const int error = grow(callers);

		if (error)
			return error;
		slot = find(callers, item);
	}
	if (!*slot) {
		callers->items[callers->n++] = *item;
		*slot = (uint32_t)callers->n;
	}
	*ret = *slot - 1;
	return 0;
}

const struct ptm_returns *ptm_callers_items(const struct ptm_callers *callers, size_t *ret)
{
	*ret = callers->n;
	return callers->items;
}
