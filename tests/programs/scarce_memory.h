/* SPDX-License-Identifier: MIT */
/*
 * Does something again and again, each time with another allocation that fails: the n-th one, or that and all after it.
 * Whatever fails, nothing may be read or freed that is not there, and nothing may be left: the sanitizers watch that.
 *
 * To be linked with --wrap for malloc, calloc, realloc and aligned_alloc.
 */
#ifndef SCARCE_MEMORY_H
#define SCARCE_MEMORY_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static size_t made, failing; /* allocations of this round; which of them fails, 0: none */
static bool for_good;

static bool fails(void)
{
    made++;
    return failing && (made == failing || (for_good && made > failing));
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *__wrap_malloc(size_t size) { return fails() ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t count, size_t size) { return fails() ? NULL : __real_calloc(count, size); }
void *__wrap_realloc(void *block, size_t size) { return fails() ? NULL : __real_realloc(block, size); }
void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : __real_aligned_alloc(alignment, size);
}

/* Fail each allocation of `work` once, then each with all that follow it; `work` says whether it got to its end. Prints
 * how many could fail, and how often that was told. Returns 0, or 1: something is wrong without any failing, or nothing
 * could fail. */
static int exhaust(const char *name, bool (*work)(void))
{
    for (int turn = 0; turn < 2; turn++) {
        for_good = turn;
        failing = made = 0;
        if (!work() || !made)
            return 1;
        size_t most = made, told = 0;
        for (failing = 1; failing <= most; failing++) {
            made = 0;
            told += !work();
        }
        failing = 0;
        printf("%s: %zu failed, %zu told\n", name, most, told);
    }
    return 0;
}

#endif
