/* SPDX-License-Identifier: MIT */
/* Word count: how often each word occurs in the text of FILE, SIZE bytes of it; prints the ten most frequent.
 * Stresses: map, then merge: each thread allocates a table of its own, which the first thread then reads through. */
#include "workload.h"

#include <ctype.h>

enum { BUCKETS = 1 << 12, TOP = 10 };

struct word {
	struct word *next;
	long count;
	size_t length;
	char letters[];
};

static const unsigned char *text;
static struct word **tables[MAX_THREADS];

static struct word *lookup(struct word **table, const unsigned char *letters, size_t length, unsigned hash)
{
	struct word **at = &table[hash % BUCKETS];
	while (*at && ((*at)->length != length || memcmp((*at)->letters, letters, length) != 0))
		at = &(*at)->next;
	if (!*at) {
		*at = allocate(sizeof **at + length + 1);
		(*at)->length = length;
		memcpy((*at)->letters, letters, length);
	}
	return *at;
}

static unsigned hash_of(const unsigned char *letters, size_t length)
{
	unsigned hash = 5381;
	for (size_t i = 0; i < length; i++)
		hash = hash * 33 + letters[i];
	return hash;
}

/* A word belongs to the share in which it begins. */
static void *map(void *argument)
{
	long id = (long)argument, at = share(size, id), end = share(size, id + 1);
	struct word **table = tables[id] = allocate(BUCKETS * sizeof *table);
	while (at > 0 && at < size && isalpha(text[at - 1]) && isalpha(text[at]))
		at++;
	while (at < end) {
		long from = at;
		while (at < size && isalpha(text[at]))
			at++;
		if (at > from) {
			size_t length = (size_t)(at - from);
			lookup(table, text + from, length, hash_of(text + from, length))->count++;
		}
		at++;
	}
	return NULL;
}

static void merge(struct word **into, struct word **table)
{
	for (int bucket = 0; bucket < BUCKETS; bucket++)
		for (struct word *one = table[bucket], *next; one; one = next) {
			next = one->next;
			lookup(into, (const unsigned char *)one->letters, one->length, (unsigned)bucket)->count +=
				one->count;
			free(one);
		}
	free(table);
}

static int by_count(const void *left, const void *right)
{
	const struct word *a = *(struct word *const *)left, *b = *(struct word *const *)right;
	return a->count != b->count ? (a->count < b->count ? 1 : -1) : strcmp(a->letters, b->letters);
}

int main(int argc, char **argv)
{
	begin(argc, argv, 3);
	text = map_input(argv[3]);
	in_threads(map);
	struct word **all = tables[0];
	for (int id = 1; id < threads; id++)
		merge(all, tables[id]);
	size_t distinct = 0;
	long words = 0;
	for (int bucket = 0; bucket < BUCKETS; bucket++)
		for (struct word *one = all[bucket]; one; one = one->next)
			distinct++, words += one->count;
	struct word **sorted = allocate(distinct * sizeof *sorted + 1);
	size_t at = 0;
	for (int bucket = 0; bucket < BUCKETS; bucket++)
		for (struct word *one = all[bucket]; one; one = one->next)
			sorted[at++] = one;
	qsort(sorted, distinct, sizeof *sorted, by_count);
	printf("%ld words, %zu distinct\n", words, distinct);
	for (size_t i = 0; i < distinct && i < TOP; i++)
		printf("%s %ld\n", sorted[i]->letters, sorted[i]->count);
	return 0;
}
