/* SPDX-License-Identifier: MIT */
/*
 * Kinds and keys of an event vector: declared once by any thread of any process, then referred to by number.
 *
 * No lock: an entry is claimed by a compare-and-swap, written, and published. Who finds one claimed goes on behind it,
 * so a claimant that was interrupted or killed makes nobody wait; at worst a name is declared twice, which readers see
 * as one. May be used in signal handlers.
 */
#ifndef PTW_VECTOR_NAMES_H
#define PTW_VECTOR_NAMES_H

#include "vector.h"

/* Declare it. The number, or -EINVAL (bad fields or name), -ENOSPC. */
int ptv_kind_declare(const struct ptv_vector *vector, struct ptv_kind *kind);

/* Declare it. The number, or -ENOSPC or -ENAMETOOLONG: the name goes into each event. */
int ptv_key_declare(const struct ptv_vector *vector, struct ptv_key *key);

static inline int ptv_kind_number(const struct ptv_vector *vector, struct ptv_kind *kind)
{
	uint64_t known = __atomic_load_n(&kind->known, __ATOMIC_RELAXED);
	return __builtin_expect(known >> 32 == vector->identity, 1) ? (int)(known & 0xffff)
								     : ptv_kind_declare(vector, kind);
}

static inline int ptv_key_number(const struct ptv_vector *vector, struct ptv_key *key)
{
	uint64_t known = __atomic_load_n(&key->known, __ATOMIC_RELAXED);
	return __builtin_expect(known >> 32 == vector->identity, 1) ? (int)(known & 0xffff)
								     : ptv_key_declare(vector, key);
}

#endif
