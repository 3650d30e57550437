/* SPDX-License-Identifier: MIT */
/* Decodes event lists (decode/src/evl.h), three at a time, and looks at every byte that comes out. */
#include "evl.h"

#include <stdio.h>
#include <stdlib.h>

static uint64_t sum;

static void look(const struct evl_batch *batch)
{
	for (uint32_t i = 0; i < batch->rows; i++) {
		sum += (uint64_t)batch->thunk[i] + batch->operation[i] + batch->flags[i] + batch->object[i] +
		       (uint64_t)batch->result[i] + (uint64_t)batch->t[i] + (uint64_t)batch->wait[i] + batch->tsc[i] +
		       batch->marker[i];
		for (int32_t k = batch->clock_offsets[i]; k < batch->clock_offsets[i + 1]; k++)
			sum += batch->clock[k];
		sum += (uint64_t)batch->stack[i];
	}
	for (uint32_t i = 0; i < batch->new_stacks; i++)
		for (uint32_t k = batch->new_offsets[i]; k < batch->new_offsets[i + 1]; k++)
			sum += batch->new_words[k];
}

static void look_at_accesses(const struct evl_accesses *batch)
{
	for (uint32_t i = 0; i < batch->rows; i++) {
		sum += (uint64_t)batch->thunk[i] + batch->operation[i] + batch->tsc[i] + (uint64_t)batch->t[i] +
		       batch->address[i] + batch->argument[i] + (uint64_t)batch->first;
		for (int32_t k = batch->stack_offsets[i]; k < batch->stack_offsets[i + 1]; k++)
			sum += batch->stack[k];
	}
	for (uint32_t i = 0; i < batch->pages; i++)
		sum += (uint64_t)batch->page_record[i] + batch->page[i] + (uint64_t)batch->page_thunk[i] +
		       (uint64_t)batch->page_until[i] + batch->page_write[i];
}

int main(int count, char **paths)
{
	static const struct evl_clocks clocks[] = {
		{1000, UINT64_MAX, INT64_MAX, INT64_MIN}, {1000, UINT64_MAX, INT64_MIN, INT64_MAX}, {0, 1, 0, INT64_MAX / 2},
		{1000, 2000, 5, 9},
	};
	for (int i = 1; i < count; i += 3) {
		struct evl_decoder *decoder = evl_decoder_create(&clocks[i / 3 % 4], 1000);
		struct evl_batch batch;
		struct evl_accesses accesses;
		struct evl_counts counts;
		int result;
		for (int k = i; k < i + 3 && k < count; k++)
			if (evl_decoder_add(decoder, paths[k], k * 2) != 0)
				return 1;
		while ((result = evl_decoder_next(decoder, &batch, &accesses)) > 0) {
			if (result == EVL_THUNKS)
				look(&batch);
			else
				look_at_accesses(&accesses);
		}
		evl_decoder_counts(decoder, &counts);
		evl_decoder_destroy(decoder);
		if (result != 0)
			return 2;
	}
	printf("%llu\n", (unsigned long long)sum);
	return 0;
}
