/* SPDX-License-Identifier: MIT */
/* Mixing of 64-bit keys for the hash tables; pure functions. */
#ifndef PTD_HASH_H
#define PTD_HASH_H

#include <stdint.h>

/* Spread a key's entropy over all bits (a multiply and a shift: the keys are addresses and small numbers). */
static inline uint64_t ptd_mix(uint64_t key)
{
    key *= UINT64_C(0x9E3779B97F4A7C15);
    return key ^ key >> 32;
}

static inline uint64_t ptd_mix2(uint64_t seed, uint64_t key)
{
    return ptd_mix(seed ^ (key + UINT64_C(0x632BE59BD9B4E019)));
}

#endif
