/* SPDX-License-Identifier: MIT */
/* Numbers that look random and are the same in every run (xorshift64, Marsaglia 2003). For programs of one file. */
#ifndef PTW_TEST_RANDOM_H
#define PTW_TEST_RANDOM_H

#include <stdint.h>

static uint64_t state = 88172645463325252u;

static uint64_t any(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static uint32_t below(uint32_t n)
{
	return (uint32_t)(any() % n);
}

#endif
