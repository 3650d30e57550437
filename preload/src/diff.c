/* SPDX-License-Identifier: MIT */
/*
 * Differences of pages; diff.h says what is guaranteed.
 *
 * Pages are compared with SSE2, which all x86-64 has, with AVX2 or with AVX-512: three versions of one loop, each made by
 * the compiler from the same text with a line's comparison of its own. Which one is known from the first page on; the
 * compiler's own way of asking (__builtin_cpu_supports) looks at every feature when the library is loaded, which costs a
 * program under the soft engine milliseconds.
 */
#include "diff.h"

#include <cpuid.h>
#include <immintrin.h>
#include <string.h>

enum { LINE = 64 };

#define AVX2 __attribute__((target("avx2,bmi,popcnt")))
#define AVX512 __attribute__((target("avx512bw,avx512f,bmi,popcnt")))
#define INLINE static inline __attribute__((always_inline))

/* --- a line: a bit for each byte that differs --- */

INLINE uint64_t line_plain(const char *page, const char *twin)
{
	uint64_t same = 0;
	for (unsigned i = 0; i < 4; i++) {
		__m128i a = _mm_load_si128((const __m128i *)(page + 16 * i));
		__m128i b = _mm_load_si128((const __m128i *)(twin + 16 * i));
		same |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(a, b)) << (16 * i);
	}
	return ~same;
}

AVX2 INLINE uint64_t line_avx2(const char *page, const char *twin)
{
	uint64_t same = 0;
	for (unsigned i = 0; i < 2; i++) {
		__m256i a = _mm256_load_si256((const __m256i *)(page + 32 * i));
		__m256i b = _mm256_load_si256((const __m256i *)(twin + 32 * i));
		same |= (uint64_t)(uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(a, b)) << (32 * i);
	}
	return ~same;
}

AVX512 INLINE uint64_t line_avx512(const char *page, const char *twin)
{
	return _mm512_cmpneq_epi8_mask(_mm512_load_si512(page), _mm512_load_si512(twin));
}

/* --- a page --- */

#define PAGE_LOOPS(name, target)                                                                                \
	target static uint32_t diff_##name(const char *page, const char *twin, struct ptw_diff *ret)            \
	{                                                                                                       \
		uint64_t lines = 0;                                                                             \
		uint32_t count = 0;                                                                             \
		for (unsigned i = 0; i < PTW_DIFF_WORDS; i++) {                                                 \
			ret->bits[i] = line_##name(page + LINE * i, twin + LINE * i);                           \
			lines |= (uint64_t)(ret->bits[i] != 0) << i;                                            \
		}                                                                                               \
		ret->lines = lines;                                                                             \
		for (; lines; lines &= lines - 1)                                                               \
			count += (uint32_t)__builtin_popcountll(ret->bits[__builtin_ctzll(lines)]);             \
		return count;                                                                                   \
	}                                                                                                       \
	target static uint64_t lines_##name(const char *page, const char *twin, uint64_t among)                 \
	{                                                                                                       \
		uint64_t lines = 0;                                                                             \
		for (; among; among &= among - 1) {                                                             \
			unsigned i = (unsigned)__builtin_ctzll(among);                                          \
			lines |= (uint64_t)(line_##name(page + LINE * i, twin + LINE * i) != 0) << i;           \
		}                                                                                               \
		return lines;                                                                                   \
	}

PAGE_LOOPS(plain, )
PAGE_LOOPS(avx2, AVX2)
PAGE_LOOPS(avx512, AVX512)

enum version { UNKNOWN, PLAIN, WITH_AVX2, WITH_AVX512 };

/* Bits of CPUID leaves 1 and 7, and what of the extended state the kernel saves (XCR0; SDM vol. 1, 13.3). */
enum { OSXSAVE = 1 << 27, HAS_AVX2 = 1 << 5, HAS_AVX512F = 1 << 16, HAS_AVX512BW = 1 << 30, SAVES_AVX = 0x6, SAVES_AVX512 = 0xe6 };

static enum version ask(void)
{
	unsigned a, b, c, d, saved, high;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & OSXSAVE) || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
		return PLAIN;
	__asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
	if ((b & HAS_AVX512F) && (b & HAS_AVX512BW) && (saved & SAVES_AVX512) == SAVES_AVX512)
		return WITH_AVX512;
	return (b & HAS_AVX2) && (saved & SAVES_AVX) == SAVES_AVX ? WITH_AVX2 : PLAIN;
}

/* Whoever asks at the same time finds the same. */
static enum version best(void)
{
	static int known = UNKNOWN;
	int version = __atomic_load_n(&known, __ATOMIC_RELAXED);

	if (__builtin_expect(version == UNKNOWN, 0)) {
		version = ask();
		__atomic_store_n(&known, version, __ATOMIC_RELAXED);
	}
	return (enum version)version;
}

uint32_t ptw_diff(const void *page, const void *twin, struct ptw_diff *ret)
{
	switch (best()) {
	case WITH_AVX512:
		return diff_avx512(page, twin, ret);
	case WITH_AVX2:
		return diff_avx2(page, twin, ret);
	default:
		return diff_plain(page, twin, ret);
	}
}

uint64_t ptw_diff_lines(const void *page, const void *twin, uint64_t among)
{
	switch (best()) {
	case WITH_AVX512:
		return lines_avx512(page, twin, among);
	case WITH_AVX2:
		return lines_avx2(page, twin, among);
	default:
		return lines_plain(page, twin, among);
	}
}

/* --- copying --- */

typedef uint64_t __attribute__((may_alias)) word;
typedef uint32_t __attribute__((may_alias)) half;

void ptw_diff_take(void *one, void *two, const void *from, uint64_t lines)
{
	for (; lines; lines &= lines - 1) {
		unsigned first = (unsigned)__builtin_ctzll(lines) * (LINE / 8);
		for (unsigned i = first; i < first + LINE / 8; i++)
			((word *)one)[i] = ((word *)two)[i] = __atomic_load_n((const word *)from + i, __ATOMIC_RELAXED);
	}
}

/* The 8 bits of a word as a mask of its bytes. */
static uint64_t mask_of(unsigned bits)
{
	uint64_t spread = (bits * 0x0101010101010101ull) & 0x8040201008040201ull;
	return (((spread + 0x7f7f7f7f7f7f7f7full) | spread) >> 7 & 0x0101010101010101ull) * 0xff;
}

static void store_whole(word *to, uint64_t value, unsigned bits)
{
	uint64_t mask = mask_of(bits), merged = (*to & ~mask) | (value & mask);
	if ((bits & 0x0f) && (bits & 0xf0))
		__atomic_store_n(to, merged, __ATOMIC_RELAXED);
	else if (bits & 0x0f)
		__atomic_store_n((half *)to, (uint32_t)merged, __ATOMIC_RELAXED);
	else
		__atomic_store_n((half *)to + 1, (uint32_t)(merged >> 32), __ATOMIC_RELAXED);
}

static void store_bytes(char *to, const char *from, unsigned bits)
{
	for (; bits; bits &= bits - 1) {
		unsigned i = (unsigned)__builtin_ctz(bits);
		__atomic_store_n(to + i, from[i], __ATOMIC_RELAXED);
	}
}

static void apply_word(char *to, const char *from, unsigned bits, bool whole)
{
	uint64_t value;
	memcpy(&value, from, sizeof value);
	if (bits == 0xff)
		__atomic_store_n((word *)to, value, __ATOMIC_RELAXED);
	else if (whole)
		store_whole((word *)to, value, bits);
	else
		store_bytes(to, from, bits);
}

static void apply_line(char *to, const char *from, uint64_t bits, bool whole)
{
	while (bits) {
		unsigned at = (unsigned)__builtin_ctzll(bits) & ~7u;
		apply_word(to + at, from + at, (unsigned)(bits >> at) & 0xff, whole);
		bits &= ~(0xffull << at);
	}
}

void ptw_diff_apply(void *to, const void *from, const struct ptw_diff *diff, bool whole)
{
	for (uint64_t lines = diff->lines; lines; lines &= lines - 1) {
		unsigned i = (unsigned)__builtin_ctzll(lines);
		apply_line((char *)to + LINE * i, (const char *)from + LINE * i, diff->bits[i], whole);
	}
}

int ptw_diff_overlap(const void *shared, const void *twin, const struct ptw_diff *diff)
{
	for (uint64_t lines = diff->lines; lines; lines &= lines - 1) {
		unsigned i = (unsigned)__builtin_ctzll(lines), at = LINE * i;
		uint64_t both = diff->bits[i] & line_plain((const char *)shared + at, (const char *)twin + at);
		if (both)
			return (int)at + __builtin_ctzll(both);
	}
	return -1;
}

/* --- runs --- */

static bool add_run(uint64_t *ret, uint32_t *count, uint32_t begin, uint32_t end)
{
	uint64_t run = begin | (uint64_t)(end - begin) << 16;
	if (*count == PTW_DIFF_RUNS)
		return false;
	ret[*count / 2] = *count % 2 ? ret[*count / 2] | run << 32 : run;
	++*count;
	return true;
}

uint32_t ptw_diff_runs(const struct ptw_diff *diff, uint64_t *ret)
{
	uint32_t count = 0, begin = 0;
	uint64_t within = 0, lines = diff->lines; /* all ones in a run: turns its end into the next bit that is set */
	/* lines with bits, and where a run goes on, the line after it */
	for (uint32_t i = 0; i < PTW_DIFF_WORDS && (within || lines); i++, lines &= ~0ull << i % 64) {
		if (!within)
			i = (uint32_t)__builtin_ctzll(lines);
		for (uint64_t rest = diff->bits[i] ^ within; rest;) {
			uint32_t bit = (uint32_t)__builtin_ctzll(rest);
			if (within && !add_run(ret, &count, begin, LINE * i + bit))
				return 0;
			begin = LINE * i + bit;
			within = ~within;
			rest = (diff->bits[i] ^ within) & ~0ull << bit;
		}
	}
	return !within || add_run(ret, &count, begin, PTW_PAGE) ? count : 0;
}
