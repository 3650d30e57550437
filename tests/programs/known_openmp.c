/* SPDX-License-Identifier: MIT */
/*
 * OpenMP's constructs, each with a page that one thread writes before and others read, or write, behind what orders them.
 * The page PLANTED is written by one and read by another with nothing between. Pages are so far apart that none is opened
 * ahead with another; their addresses are printed first, and then what the constructs made.
 */
#include <omp.h>
#include <stdio.h>
#include <sched.h>
#include <unistd.h>

enum { PAGE = 4096, APART = 16 * PAGE, THREADS = 3, ROUNDS = 4 };

enum which {
	BARRIER, LOOP, SECTIONS, SINGLE, COPIED, CRITICAL, NAMED, ORDERED, LOCK, TRIED, NESTED_LOCK, TASK, DEPENDENT, TASKLOOP,
	GROUP, DOACROSS, DYNAMIC, GUIDED, RUNTIME, PARALLEL_SECTIONS, REDUCED, INNER, FEWER, ATOMIC, CANCELLED, LEFT, PLANTED, PAGES
};

static _Alignas(PAGE) volatile long pages[PAGES][APART / sizeof(long)];
static omp_lock_t lock, tried;
static omp_nest_lock_t nested;

static void barriers(int number)
{
	for (int round = 0; round < ROUNDS; round++) {
		if (round % THREADS == number)
			pages[BARRIER][0]++;
#pragma omp barrier
	}
}

static void work_shared(void)
{
#pragma omp for schedule(dynamic, 1)
	for (int i = 0; i < 6; i++)
		if (i == 4)
			pages[LOOP][0]++;
#pragma omp sections
	{
#pragma omp section
		pages[SECTIONS][0] += pages[LOOP][0];
#pragma omp section
		pages[DYNAMIC][1]++;
	}
#pragma omp single
	pages[SINGLE][0] += pages[SECTIONS][0] + pages[DYNAMIC][1];
}

static long copied_out(void)
{
	long value;
#pragma omp single copyprivate(value)
	{
		pages[COPIED][0] = pages[SINGLE][0];
		value = pages[COPIED][0];
	}
	return value + pages[COPIED][0];
}

static void excluded(void)
{
#pragma omp critical
	pages[CRITICAL][0]++;
#pragma omp critical(named)
	pages[NAMED][0]++;
	omp_set_lock(&lock);
	pages[LOCK][0]++;
	omp_unset_lock(&lock);
	while (!omp_test_lock(&tried))
		sched_yield();
	pages[TRIED][0]++;
	omp_unset_lock(&tried);
	omp_set_nest_lock(&nested);
	omp_set_nest_lock(&nested);
	pages[NESTED_LOCK][0]++;
	omp_unset_nest_lock(&nested);
	omp_unset_nest_lock(&nested);
#pragma omp for ordered schedule(static, 1)
	for (int i = 0; i < 6; i++) {
#pragma omp ordered
		pages[ORDERED][0] = pages[ORDERED][0] * 2 + i;
	}
}

static long tasks(void)
{
	long sum = 0;
#pragma omp single
	{
		pages[TASK][0] = 1;
		for (int i = 1; i < 4; i++)
#pragma omp task firstprivate(i)
			{
				usleep(2000); /* the others take some */
				pages[TASK][i * PAGE / 8] += pages[TASK][0] + i;
			}
#pragma omp taskwait
		for (int i = 1; i < 4; i++)
			sum += pages[TASK][i * PAGE / 8];
		for (int i = 0; i < 6; i++)
#pragma omp task depend(inout : pages[DEPENDENT][0])
			pages[DEPENDENT][0]++;
#pragma omp taskgroup
		{
#pragma omp task
			pages[GROUP][0]++;
		}
		sum += pages[GROUP][0];
#pragma omp taskloop grainsize(1)
		for (int i = 1; i < 4; i++)
			pages[TASKLOOP][i * PAGE / 8] += i;
		for (int i = 1; i < 4; i++)
			sum += pages[TASKLOOP][i * PAGE / 8];
	}
	return sum;
}

static void across(void)
{
#pragma omp for ordered(1) schedule(static, 1)
	for (int i = 0; i < 6; i++) {
#pragma omp ordered depend(sink : i - 1)
		pages[DOACROSS][0]++;
#pragma omp ordered depend(source)
	}
}

static void planted(int number)
{
	if (number == 1)
		pages[PLANTED][0] = 1;
	if (number == 2)
		pages[PLANTED][8] += pages[PLANTED][0];
}

/* Regions whose loops begin with them, and regions in regions. */
static void regions(void)
{
	long sum = 0;
#pragma omp parallel for num_threads(THREADS) schedule(dynamic, 1)
	for (int i = 0; i < 6; i++)
		if (i == 5)
			pages[DYNAMIC][0]++;
#pragma omp parallel for num_threads(2) schedule(guided, 1)
	for (int i = 0; i < 6; i++)
		if (i == 5)
			pages[GUIDED][0] += pages[DYNAMIC][0];
#pragma omp parallel for num_threads(THREADS) schedule(runtime)
	for (int i = 0; i < 6; i++)
		if (i == 5)
			pages[RUNTIME][0] += pages[GUIDED][0];
#pragma omp parallel sections num_threads(THREADS)
	{
#pragma omp section
		pages[PARALLEL_SECTIONS][0] += pages[RUNTIME][0];
#pragma omp section
		pages[PARALLEL_SECTIONS][PAGE / 8] += pages[RUNTIME][0];
	}
#pragma omp parallel num_threads(THREADS) reduction(task, + : sum)
	{
#pragma omp single
#pragma omp task in_reduction(+ : sum)
		sum += pages[PARALLEL_SECTIONS][0];
	}
	pages[REDUCED][0] += sum;
#pragma omp parallel num_threads(2)
	{
		if (omp_get_thread_num() == 1)
			pages[INNER][0] += pages[REDUCED][0];
#pragma omp barrier
#pragma omp parallel num_threads(2)
		{
			if (omp_get_thread_num() == 1 && omp_get_ancestor_thread_num(1) == 0)
				pages[INNER][0]++;
#pragma omp barrier
			if (omp_get_thread_num() == 0 && omp_get_ancestor_thread_num(1) == 0)
				pages[INNER][0]++;
		}
	}
#pragma omp parallel num_threads(2)
	{
		for (int round = 0; round < 2 * ROUNDS + 1; round++) {
			if (round % 2 == omp_get_thread_num())
				pages[FEWER][0]++;
#pragma omp barrier
		}
	}
#pragma omp parallel num_threads(THREADS)
#pragma omp for schedule(static, 1)
	for (int i = 0; i < 6; i++) {
		if (i == 1)
			pages[CANCELLED][0]++;
#pragma omp cancel for if (i == 5)
	}
	pages[CANCELLED][0]++;
#ifndef LLVM /* whose members would wait for ever */
#pragma omp parallel num_threads(THREADS)
	{
		if (omp_get_thread_num() == 1)
			pages[CANCELLED][0]++;
#pragma omp barrier
#pragma omp cancel parallel if (omp_get_thread_num() == 0)
		if (omp_get_thread_num() != 0) {
#pragma omp barrier
		}
	}
#endif
}

/* Tasks that nobody waits for are done when the region is over, by whoever has nothing else to do. */
static long left_over(void)
{
	long sum = 0;
#pragma omp parallel num_threads(THREADS)
#pragma omp single nowait
	{
		pages[LEFT][0]++;
		for (int i = 1; i < 4; i++)
#pragma omp task firstprivate(i)
			{
				usleep(2000); /* the others take some */
				pages[LEFT][i * PAGE / 8] += pages[LEFT][0] + i;
			}
	}
	for (int i = 1; i < 4; i++)
		sum += pages[LEFT][i * PAGE / 8];
	return sum;
}

int main(void)
{
	long copied = 0, sum = 0;

	for (int i = 0; i < PAGES; i++)
		printf("page %d %p\n", i, (void *)pages[i]);
	fflush(stdout);
	omp_init_lock(&lock);
	omp_init_lock(&tried);
	omp_init_nest_lock(&nested);
	omp_set_max_active_levels(2);
	for (int round = 0; round < 2; round++) {
#pragma omp parallel num_threads(THREADS) reduction(+ : copied, sum)
		{
			barriers(omp_get_thread_num());
			work_shared();
			copied += copied_out();
			excluded();
			sum += tasks();
			across();
			planted(omp_get_thread_num());
#pragma omp atomic
			pages[ATOMIC][0]++;
		}
		regions();
		sum += left_over();
	}
	for (int i = 0; i < PAGES; i++)
		if (i != PLANTED)
			printf("%ld ", pages[i][0]);
	printf("%ld %ld\n", copied, sum);
	return 0;
}
