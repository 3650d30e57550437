/* SPDX-License-Identifier: MIT */
/* Memory that is passed through; passed.h says what is guaranteed. */
#define _GNU_SOURCE
#include "passed.h"

#include "notice.h"
#include "pages.h"
#include "program.h"
#include "symbols.h"

#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

enum { NAME = 256, SAME_NAME = 8 };

#define passed (&ptw_program_state->passed)

static void add(uint64_t address, uint64_t size)
{
	uint64_t start = ptw_page_down(address), end = ptw_page_down(address + size + PTW_PAGE - 1);
	uint32_t count = passed->count;
	for (uint32_t i = 0; i < count; i++)
		if (passed->range[i].start == start && passed->range[i].end == end)
			return;
	if (count == PTW_PASSED_RANGES || end <= start) {
		ptw_notice(PTW_NOTICE_SHARED, NULL, "more than 256 ranges are passed through, or an empty one");
		return;
	}
	passed->range[count].start = start;
	passed->range[count].end = end;
	__atomic_store_n(&passed->count, count + 1, __ATOMIC_RELEASE);
}

struct search {
	const char *name;
	unsigned found;
};

static int look(struct dl_phdr_info *info, size_t size, void *data)
{
	struct search *search = data;
	struct ptw_symbol symbol[SAME_NAME];
	const char *program = (const char *)getauxval(AT_EXECFN), *path = info->dlpi_name;
	(void)size;
	unsigned found = ptw_symbols_find(*path || !program ? path : program, search->name, symbol, SAME_NAME);
	for (unsigned i = 0; i < found; i++)
		add(info->dlpi_addr + symbol[i].address, symbol[i].size);
	search->found += found;
	return 0;
}

/* 0xADDRESS or 0xFROM-0xTO. */
static bool by_address(const char *name)
{
	char *end;
	uint64_t from = strtoull(name, &end, 16), to = from + 1;
	if (name[0] != '0' || (name[1] != 'x' && name[1] != 'X'))
		return false;
	if (*end == '-')
		to = strtoull(end + 1, &end, 16);
	if (*end == '\0' && to > from)
		add(from, to - from);
	return *end == '\0';
}

static PTW_CHANGING const char *asked; /* what PTWEAVE_SHARED said at the start, in memory of our own */

/* The environment is the program's: where it changes it, it lies in pages that are closed, or is gone. */
static void remember(const char *said)
{
	size_t size = strlen(said) + 1;
	long copy = PTW_SYS(SYS_mmap, 0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (copy < 0)
		ptw_notice(PTW_NOTICE_LIMIT, NULL, "no memory for the names of what is passed through: nothing is");
	else
		asked = memcpy((void *)copy, said, size);
}

static void take(const char *name, bool tell)
{
	struct search search = {name, 0};
	char line[PTW_NOTICE_TEXT];
	if (by_address(name))
		return;
	dl_iterate_phdr(look, &search);
	if (search.found || !tell)
		return;
	snprintf(line, sizeof line, "nothing that is loaded at the start has a variable \"%.60s\"", name);
	/* each name is told of once: the string stands for the place */
	ptw_notice(PTW_NOTICE_SHARED, strstr(asked, name), line);
}

static void take_all(bool tell)
{
	const char *at = asked;
	int before = errno;
	for (; at && *at; at += *at == ',') {
		char name[NAME];
		size_t length = strcspn(at, ",");
		if (length && length < sizeof name) {
			memcpy(name, at, length);
			name[length] = '\0';
			take(name, tell);
		}
		at += length;
	}
	errno = before;
}

void ptw_passed_init(void)
{
	const char *said = getenv("PTWEAVE_SHARED");
	if (said)
		remember(said);
	take_all(true);
}

void ptw_passed_again(void) { take_all(false); }

bool ptw_is_passed(uint64_t address)
{
	uint32_t count = __atomic_load_n(&passed->count, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < count; i++)
		if (address - passed->range[i].start < passed->range[i].end - passed->range[i].start)
			return true;
	return false;
}
