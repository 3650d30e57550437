/* SPDX-License-Identifier: MIT */
/*
 * Memory of atomic instructions; atomic_places.h says what is guaranteed.
 *
 * Code is not disassembled: every LOCK byte and every opcode of xchg that would begin an instruction with a target in the
 * same object's writable data is taken for one. Bytes in the midst of other instructions seldom do: 32 bits of theirs
 * would have to hit the object's data.
 */
#define _GNU_SOURCE
#include "atomic_places.h"

#include "atomic_insn.h"
#include "pages.h"
#include "segments.h"
#include "view.h"

#include <emmintrin.h>
#include <link.h>

/* Each process has its own, of which all are equal: threads are made later. */
static struct { uint64_t address, code; uint32_t page; } place[PTW_ATOMIC_PLACES];
static uint32_t places;

bool ptw_atomic_places_find(uint32_t page, uint64_t *ret_address, uint64_t *ret_code)
{
	for (uint32_t i = 0; i < places; i++) {
		if (place[i].page != page)
			continue;
		*ret_address = place[i].address;
		*ret_code = place[i].code;
		return true;
	}
	return false;
}

struct object {
	uint64_t from, to; /* its data */
};

static void found(const struct object *object, const uint8_t *code, const uint8_t *start, const uint8_t *end)
{
	uint64_t address = ptw_insn_atomic_target(code, start, end), before, by;
	if (address - object->from >= object->to - object->from || places == PTW_ATOMIC_PLACES)
		return;
	uint32_t page = ptw_page_of(address);
	if (page >= PTW_MEMFD_PAGES || ptw_atomic_places_find(page, &before, &by))
		return;
	place[places].address = address;
	place[places].code = (uint64_t)code;
	place[places++].page = page;
	ptw_view_expect(page);
}

/* Sixteen places at a time. */
static void search(const struct object *object, const uint8_t *start, uint64_t size)
{
	const uint8_t *at = start, *end = start + size;
	const __m128i lock = _mm_set1_epi8((char)0xf0), exchange = _mm_set1_epi8((char)0x87), one = _mm_set1_epi8(1);
	for (; end - at >= 16; at += 16) {
		__m128i here = _mm_loadu_si128((const __m128i *)(const void *)at);
		__m128i is = _mm_or_si128(_mm_cmpeq_epi8(here, lock), _mm_cmpeq_epi8(_mm_or_si128(here, one), exchange));
		for (int bits = _mm_movemask_epi8(is); bits; bits &= bits - 1)
			found(object, at + __builtin_ctz((unsigned)bits), start, end);
	}
	for (; at < end; at++)
		if (*at == 0xf0 || (*at | 1) == 0x87)
			found(object, at, start, end);
}

static int look(struct dl_phdr_info *info, size_t size, void *data)
{
	struct object object = {UINT64_MAX, 0};
	(void)size, (void)data;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		uint64_t from = info->dlpi_addr + part->p_vaddr, to = from + part->p_memsz;
		if (part->p_type != PT_LOAD || !(part->p_flags & PF_W) || ptw_page_of(to - 1) == PTW_PAGE_NONE)
			continue; /* what is not tracked has no copies */
		object.from = from < object.from ? from : object.from;
		object.to = to > object.to ? to : object.to;
	}
	for (unsigned i = 0; i < info->dlpi_phnum && object.from < object.to; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		if (part->p_type == PT_LOAD && part->p_flags & PF_X && part->p_flags & PF_R)
			search(&object, (const uint8_t *)(info->dlpi_addr + part->p_vaddr), part->p_filesz);
	}
	return 0;
}

void ptw_atomic_places_init(void) { dl_iterate_phdr(look, NULL); }
