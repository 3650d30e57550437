/* SPDX-License-Identifier: MIT */
/*
 * bt, bts, btr and btc of registers with rsp at the beginning of a mapping: they touch no memory on a processor, and
 * leave rsp alone. Prints how many of 200 rounds came out right; exits 0 when all did.
 */
#define _DEFAULT_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

enum { PAGE = 4096, ROUNDS = 200 };

static int right(uint64_t value, uint64_t bit, char *stack)
{
	uint64_t set = value, reset = value, flipped = value;
	uint32_t narrow = (uint32_t)value;
	uint8_t was, was_set, was_reset, was_flipped, same_stack;

	__asm__ volatile("mov %%rsp, %%r12\n\tmov %[stack], %%rsp\n\t"
			 "bt %[bit], %[value]\n\tsetc %[was]\n\t"
			 "bts %[bit], %[set]\n\tsetc %[was_set]\n\t"
			 "btr %[bit], %[reset]\n\tsetc %[was_reset]\n\t"
			 "btc %[bit], %[flipped]\n\tsetc %[was_flipped]\n\t"
			 "btsl %k[bit], %[narrow]\n\t"
			 "cmp %[stack], %%rsp\n\tmov %%r12, %%rsp\n\tsete %[same_stack]"
			 : [was] "=&r"(was), [was_set] "=&r"(was_set), [was_reset] "=&r"(was_reset),
			   [was_flipped] "=&r"(was_flipped), [same_stack] "=&r"(same_stack), [set] "+&r"(set),
			   [reset] "+&r"(reset), [flipped] "+&r"(flipped), [narrow] "+&r"(narrow)
			 : [value] "r"(value), [bit] "r"(bit), [stack] "r"(stack)
			 : "r12", "cc", "memory");

	uint64_t mask = 1ull << (bit & 63);
	uint8_t expected = (value & mask) != 0;

	return was == expected && was_set == expected && was_reset == expected && was_flipped == expected &&
	       set == (value | mask) && reset == (value & ~mask) && flipped == (value ^ mask) &&
	       narrow == ((uint32_t)value | 1u << (bit & 31)) && same_stack;
}

int main(void)
{
	char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int count = 0;

	if (pages == MAP_FAILED || munmap(pages, PAGE))
		return 2;
	for (uint64_t bit = 0; bit < ROUNDS; bit++)
		count += right(0x123456789abcdef0ull * (bit + 1), bit, pages + PAGE + 8);
	printf("%d of %d\n", count, ROUNDS);
	return count != ROUNDS;
}
