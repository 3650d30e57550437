/* SPDX-License-Identifier: MIT */
/*
 * An event of one word, the quick way: ptv_begin, ptv_set_u64 and ptv_commit in one, where none of them has anything
 * unusual to do. It calls nothing and touches no vector register, so that code may use it that keeps few registers.
 *
 * For functions with the attribute PTV_QUICK only. Guarantees are those of vector.h.
 */
#ifndef PTW_VECTOR_QUICK_H
#define PTW_VECTOR_QUICK_H

#include "vector.h"

#define PTV_QUICK __attribute__((target("general-regs-only"), no_caller_saved_registers))

/* False: nothing was done, and the usual functions have to be used (the producer's first event, a list that is full, an
 * event in the midst of another). */
__attribute__((always_inline, target("general-regs-only"))) static inline bool
ptv_log_word(struct ptv_producer *producer, struct ptv_kind *kind, uint64_t word)
{
	const struct ptv_vector *vector = producer->vector;
	const uint32_t size = sizeof(struct ptv_record) + 8;
	if (__builtin_expect(!vector, 0))
		return false;
	const uint32_t epoch = __atomic_load_n(&producer->epoch, __ATOMIC_RELAXED);
	const uint64_t known = __atomic_load_n(&kind->known, __ATOMIC_RELAXED);
	struct ptv_lane *lane = &producer->lane[epoch & 1][0];
	if (__builtin_expect(epoch != __atomic_load_n(vector->live, __ATOMIC_RELAXED) || known >> 32 != vector->identity ||
			     __atomic_load_n(&lane->busy, __ATOMIC_RELAXED), 0))
		return false;
	__atomic_store_n(&lane->busy, 1, __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	uint64_t done = lane->done;
	struct ptv_list *list = lane->list;
	if (__builtin_expect(!list || (uint32_t)done + size > lane->limit, 0)) {
		__atomic_store_n(&lane->busy, 0, __ATOMIC_RELAXED);
		return false;
	}
	lane->generation++;
	lane->frame = (uintptr_t)__builtin_frame_address(0);
	__atomic_store_n(&list->begun, ++lane->begun, __ATOMIC_RELAXED);
	struct ptv_record *record = (struct ptv_record *)(lane->data + (uint32_t)done);
	record->size = size;
	record->kind = (uint16_t)known;
	record->flags = 0;
	record->tsc = __builtin_ia32_rdtsc();
	record->present = 1;
	record->pairs = 0;
	record->field[0] = word;
	done += size | 1ull << 32;
	__atomic_store_n(&lane->done, done, __ATOMIC_RELAXED);
	__atomic_store_n(&list->committed, done, __ATOMIC_RELEASE);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n(&lane->busy, 0, __ATOMIC_RELAXED);
	return true;
}

#endif
