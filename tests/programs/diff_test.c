/* SPDX-License-Identifier: MIT */
/* Differences of pages, against loops that are plainly right; and which instructions are atomic. */
#include "atomic_insn.h"
#include "check.h"
#include "diff.c" /* all its versions, whatever this processor has */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 3000 };

static _Alignas(64) unsigned char page[PTW_PAGE], twin[PTW_PAGE], shared[PTW_PAGE], expected[PTW_PAGE];

static uint32_t random_below(uint32_t limit)
{
	static uint64_t state = 88172645463325252ull;
	state ^= state << 13, state ^= state >> 7, state ^= state << 17;
	return (uint32_t)(state >> 32) % limit;
}

/* A page and a twin that differs in some runs of bytes; now and then in none, in all, or in every other one. */
static void make_pages(unsigned round)
{
	for (unsigned i = 0; i < PTW_PAGE; i++)
		page[i] = twin[i] = (unsigned char)random_below(256);
	unsigned runs = round % 7 == 0 ? 0 : random_below(round % 5 ? 20 : 400);
	for (unsigned run = 0; run < runs; run++) {
		unsigned from = random_below(PTW_PAGE), length = 1 + random_below(12);
		for (unsigned i = from; i < from + length && i < PTW_PAGE; i++)
			page[i] = (unsigned char)~twin[i];
	}
	for (unsigned i = 0; i < PTW_PAGE && round % 100 == 1; i++)
		page[i] = (unsigned char)~twin[i];
	for (unsigned i = 0; i < PTW_PAGE && round % 100 == 2; i += 2)
		page[i] = (unsigned char)~twin[i];
}

static bool has(const struct ptw_diff *diff, unsigned byte) { return diff->bits[byte / 64] >> (byte % 64) & 1; }

/* The versions that this processor can run, the widest last. */
static unsigned versions(void) { return __builtin_cpu_supports("avx512bw") ? 3 : __builtin_cpu_supports("avx2") ? 2 : 1; }

static uint32_t diff_by(unsigned version, struct ptw_diff *ret)
{
	return (version == 0 ? diff_plain : version == 1 ? diff_avx2 : diff_avx512)((char *)page, (char *)twin, ret);
}

static uint64_t lines_by(unsigned version, uint64_t among)
{
	return (version == 0 ? lines_plain : version == 1 ? lines_avx2 : lines_avx512)((char *)page, (char *)twin, among);
}

static void every_byte_that_differs_is_found_and_no_other(void)
{
	struct ptw_diff diff;
	for (unsigned round = 0; round < ROUNDS; round++) {
		uint32_t count = 0;
		make_pages(round);
		uint32_t found = ptw_diff(page, twin, &diff);
		for (unsigned i = 0; i < PTW_PAGE; i++) {
			CHECK(has(&diff, i) == (page[i] != twin[i]));
			count += page[i] != twin[i];
		}
		CHECK(found == count);
		for (unsigned version = 0; version < versions(); version++) {
			struct ptw_diff other;
			CHECK(diff_by(version, &other) == count && memcmp(&other, &diff, sizeof diff) == 0);
		}
		for (unsigned line = 0; line < PTW_DIFF_WORDS; line++)
			CHECK((diff.lines >> line & 1) == (diff.bits[line] != 0));
	}
}

/* What is not asked for is not found, and not copied either. */
static void lines_that_differ_are_found_and_taken(void)
{
	for (unsigned round = 0; round < ROUNDS; round++) {
		uint64_t among = round % 3 ? (uint64_t)random_below(UINT32_MAX) << 32 | random_below(UINT32_MAX) : PTW_ALL_LINES;
		make_pages(round);
		uint64_t lines = ptw_diff_lines(page, twin, among);
		for (unsigned i = 0; i < PTW_PAGE; i += 64)
			CHECK((lines >> i / 64 & 1) == ((among >> i / 64 & 1) && memcmp(page + i, twin + i, 64) != 0));
		for (unsigned version = 0; version < versions(); version++)
			CHECK(lines_by(version, among) == lines);
		memcpy(shared, twin, PTW_PAGE);
		for (unsigned i = 0; i < PTW_PAGE; i++)
			expected[i] = among >> i / 64 & 1 ? page[i] : twin[i];
		ptw_diff_take(shared, twin, page, lines);
		CHECK(memcmp(shared, expected, PTW_PAGE) == 0 && memcmp(twin, expected, PTW_PAGE) == 0);
	}
}

static void apply_and_check(unsigned round, bool whole)
{
	struct ptw_diff diff;
	make_pages(round);
	ptw_diff(page, twin, &diff);
	for (unsigned i = 0; i < PTW_PAGE; i++) {
		shared[i] = (unsigned char)random_below(256);
		expected[i] = page[i] != twin[i] ? page[i] : shared[i];
	}
	ptw_diff_apply(shared, page, &diff, whole);
	CHECK(memcmp(shared, expected, PTW_PAGE) == 0);
}

static void what_others_changed_stays(void)
{
	for (unsigned round = 0; round < ROUNDS; round++)
		apply_and_check(round, round & 1);
}

static void a_byte_that_both_changed_is_found(void)
{
	struct ptw_diff diff;
	for (unsigned round = 0; round < ROUNDS; round++) {
		int first = -1;
		make_pages(round);
		ptw_diff(page, twin, &diff);
		memcpy(shared, twin, PTW_PAGE);
		for (unsigned k = random_below(6); k > 0; k--)
			shared[random_below(PTW_PAGE)] ^= 0x55;
		for (unsigned i = 0; i < PTW_PAGE && first < 0; i++)
			if (page[i] != twin[i] && shared[i] != twin[i])
				first = (int)i;
		CHECK(ptw_diff_overlap(shared, twin, &diff) == first);
	}
}

static void runs_say_what_the_bits_say(void)
{
	uint64_t words[PTW_DIFF_WORDS];
	struct ptw_diff diff;
	unsigned many = 0;
	for (unsigned round = 0; round < ROUNDS; round++) {
		unsigned runs = 0, last_end = 0;
		make_pages(round);
		ptw_diff(page, twin, &diff);
		for (unsigned i = 0; i < PTW_PAGE; i++)
			runs += has(&diff, i) && (i == 0 || !has(&diff, i - 1));
		uint32_t found = ptw_diff_runs(&diff, words);
		CHECK(found == (runs > PTW_DIFF_RUNS ? 0 : runs));
		many += runs > PTW_DIFF_RUNS;
		for (uint32_t k = 0; k < found; k++) {
			uint32_t run = (uint32_t)(words[k / 2] >> (k % 2 ? 32 : 0)), from = run & 0xffff, length = run >> 16;
			CHECK(length > 0 && (k == 0 || from > last_end) && from + length <= PTW_PAGE);
			for (unsigned i = last_end; i < from; i++)
				CHECK(!has(&diff, i));
			for (unsigned i = from; i < from + length; i++)
				CHECK(has(&diff, i));
			last_end = from + length;
		}
		for (unsigned i = last_end; found && i < PTW_PAGE; i++)
			CHECK(!has(&diff, i));
	}
	CHECK(many > 0);
}

static unsigned toggles;

static void *toggle(void *stop)
{
	while (!__atomic_load_n((bool *)stop, __ATOMIC_RELAXED)) {
		__atomic_fetch_xor(&page[100], 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&toggles, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* A byte before it becomes equal and different all the time. */
static void what_differs_is_found_while_another_byte_changes(void)
{
	pthread_t thread;
	bool stop = false;
	memset(page, 0, PTW_PAGE);
	memset(twin, 0, PTW_PAGE);
	CHECK(!ptw_diff_lines(page, twin, PTW_ALL_LINES));
	for (unsigned i = 0; i < PTW_PAGE; i++) {
		page[i] = 1;
		CHECK(ptw_diff_lines(page, twin, PTW_ALL_LINES));
		page[i] = 0;
	}
	page[2000] = 1;
	CHECK(pthread_create(&thread, NULL, toggle, &stop) == 0);
	for (unsigned i = 0; i < 2000000 || __atomic_load_n(&toggles, __ATOMIC_RELAXED) < 100000; i++)
		CHECK(ptw_diff_lines(page, twin, PTW_ALL_LINES));
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
}

static bool atomic(const char *bytes, size_t size)
{
	uint8_t *code = malloc(size); /* no byte beyond it may be read: the address sanitizer looks */
	memcpy(code, bytes, size);
	bool found = ptw_insn_is_atomic(code);
	free(code);
	return found;
}

#define ATOMIC(bytes) atomic(bytes, sizeof(bytes) - 1)

/* Bytes as the assembler makes them. */
static void locked_instructions_and_exchanges_with_memory_are_atomic(void)
{
	CHECK(ATOMIC("\xf0\x83\x07\x01"));             /* lock addl $1, (%rdi) */
	CHECK(ATOMIC("\xf0\x48\x0f\xc1\x07"));         /* lock xaddq %rax, (%rdi) */
	CHECK(ATOMIC("\x66\xf0\x0f\xb1\x37"));         /* lock cmpxchgw %si, (%rdi) */
	CHECK(ATOMIC("\xf3\xf0\x83\x07\x01"));         /* xrelease lock addl */
	CHECK(ATOMIC("\x87\x07"));                     /* xchgl %eax, (%rdi) */
	CHECK(ATOMIC("\x48\x87\x05\x00\x00\x00\x00")); /* xchgq %rax, 0(%rip) */
	CHECK(ATOMIC("\x40\x86\x37"));                 /* xchgb %sil, (%rdi) */
	CHECK(ATOMIC("\x64\x87\x04\x25\x00\x00\x00\x00")); /* xchgl %eax, %fs:0 */
}

static void others_are_not(void)
{
	CHECK(!ATOMIC("\x83\x07\x01"));         /* addl $1, (%rdi) */
	CHECK(!ATOMIC("\x48\x89\x07"));         /* movq %rax, (%rdi) */
	CHECK(!ATOMIC("\x87\xc3"));             /* xchgl %eax, %ebx */
	CHECK(!ATOMIC("\x48\x87\xd9"));         /* xchgq %rbx, %rcx */
	CHECK(!ATOMIC("\x0f\xc1\x07"));         /* xaddl without lock */
	CHECK(!ATOMIC("\xf3\xa4"));             /* rep movsb */
	CHECK(!ATOMIC("\xc5\xfe\x7f\x07"));     /* vmovdqu %ymm0, (%rdi) */
	CHECK(!ATOMIC("\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66")); /* prefixes without end */
}

/* Where an instruction's operand lies, from its end; `before` bytes of other code precede it. INT32_MIN: nowhere. */
static int64_t target(const char *bytes, size_t size, size_t before)
{
	uint8_t *code = malloc(size); /* no byte outside may be read */
	memcpy(code, bytes, size);
	uint64_t found = ptw_insn_atomic_target(code + before, code, code + size), end = (uint64_t)(code + size);
	free(code);
	return found ? (int64_t)(found - end) : INT32_MIN;
}

#define TARGET(bytes, before) target(bytes, sizeof(bytes) - 1, before)

static void targets_that_need_no_register_are_found(void)
{
	CHECK(TARGET("\xf0\x83\x05\x10\x00\x00\x00\x01", 0) == 0x10);         /* lock addl $1, 0x10(%rip) */
	CHECK(TARGET("\xf0\x81\x05\xf0\xff\xff\xff\x01\x02\x03\x04", 0) == -0x10); /* lock addl $0x4030201 */
	CHECK(TARGET("\x66\xf0\x81\x05\x10\x00\x00\x00\x01\x02", 1) == 0x10); /* lock addw $0x201 */
	CHECK(TARGET("\xf0\x66\x81\x05\x10\x00\x00\x00\x01\x02", 0) == 0x10); /* the same */
	CHECK(TARGET("\xf0\x48\x0f\xc1\x05\x10\x00\x00\x00", 0) == 0x10);     /* lock xaddq %rax */
	CHECK(TARGET("\xf0\x48\x0f\xb1\x15\x10\x00\x00\x00", 0) == 0x10);     /* lock cmpxchgq %rdx */
	CHECK(TARGET("\xf0\x0f\xba\x2d\x10\x00\x00\x00\x03", 0) == 0x10);     /* lock btsl $3 */
	CHECK(TARGET("\xf0\x48\x0f\xc7\x0d\x10\x00\x00\x00", 0) == 0x10);     /* lock cmpxchg16b */
	CHECK(TARGET("\xf0\xff\x0d\x10\x00\x00\x00", 0) == 0x10);             /* lock decl */
	CHECK(TARGET("\x48\x87\x05\x10\x00\x00\x00", 1) == 0x10);             /* xchgq %rax */
	CHECK(TARGET("\x86\x05\x10\x00\x00\x00", 0) == 0x10);                 /* xchgb %al */
}

static void other_bytes_have_no_target(void)
{
	CHECK(TARGET("\xf0\x83\x07\x01\x00\x00\x00\x00", 0) == INT32_MIN);     /* lock addl $1, (%rdi) */
	CHECK(TARGET("\xf0\x83\x3d\x10\x00\x00\x00\x01", 0) == INT32_MIN);     /* cmp cannot be locked */
	CHECK(TARGET("\xf0\x8b\x05\x10\x00\x00\x00", 0) == INT32_MIN);         /* nor can mov */
	CHECK(TARGET("\xf0\x0f\xaf\x05\x10\x00\x00\x00", 0) == INT32_MIN);     /* nor imul */
	CHECK(TARGET("\xf0\xff\x15\x10\x00\x00\x00", 0) == INT32_MIN);         /* nor call */
	CHECK(TARGET("\x87\xc3\x10\x00\x00\x00", 0) == INT32_MIN);             /* xchgl %eax, %ebx */
	CHECK(TARGET("\xf0\x48\x0f\xc1\x05\x10\x00\x00", 0) == INT32_MIN);     /* cut off */
	CHECK(TARGET("\xf0\x48\x66\x2e\x48\x66", 0) == INT32_MIN);
	CHECK(TARGET("\xf0", 0) == INT32_MIN);
}

#define CASE(name) {#name, name}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	CASE(every_byte_that_differs_is_found_and_no_other),
	CASE(lines_that_differ_are_found_and_taken),
	CASE(what_others_changed_stays),
	CASE(a_byte_that_both_changed_is_found),
	CASE(runs_say_what_the_bits_say),
	CASE(what_differs_is_found_while_another_byte_changes),
	CASE(locked_instructions_and_exchanges_with_memory_are_atomic),
	CASE(others_are_not),
	CASE(targets_that_need_no_register_are_found),
	CASE(other_bytes_have_no_target),
};

int main(int count, char **words)
{
	for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		if (count < 2)
			puts(cases[i].name);
		else if (strcmp(words[1], cases[i].name) == 0)
			cases[i].run();
	}
	return 0;
}
