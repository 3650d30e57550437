/* SPDX-License-Identifier: MIT */
/*
 * A program with places for a bug of one line: -DBUG=N makes the line marked "bug N" wrong. Functions may be inlined and
 * loops turned around, as the compiler likes; what is wrong shows in what is written, or only in what is executed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef BUG
#define BUG 0
#endif
#define IF_BUG(number, wrong, right) (BUG == (number) ? (wrong) : (right))

enum { WORDS = 300, SLOTS = 64 };

struct word {
	struct word *next;
	unsigned hash;
	int uses;
	char text[16];
};

static struct word words[WORDS], *slots[SLOTS];
static int n_words, longest;

static unsigned hash_of(const char *text)
{
	unsigned hash = 5381;

	for (const char *at = text; *at; at++)
		hash = IF_BUG(1, hash * 31, hash * 33) + (unsigned char)*at; /* bug 1 */
	return hash;
}

static struct word *find(const char *text, unsigned hash)
{
	for (struct word *at = slots[hash % SLOTS]; at; at = at->next)
		if (IF_BUG(2, at->hash != hash, at->hash == hash) && !strcmp(at->text, text)) /* bug 2 */
			return at;
	return NULL;
}

__attribute__((noinline)) static struct word *add(const char *text)
{
	const unsigned hash = hash_of(text);
	struct word *word = find(text, hash);

	if (!word) {
		word = &words[n_words++];
		word->hash = hash;
		strncpy(word->text, text, sizeof(word->text) - 1);
		word->next = slots[hash % SLOTS];
		slots[hash % SLOTS] = word;
	}
	if (++word->uses > longest)
		longest = IF_BUG(3, longest + 2, word->uses); /* bug 3 */
	return word;
}

__attribute__((noinline)) static int is_even_sum(const int *numbers, int n)
{
	int sum = 0;

	for (int i = 0; IF_BUG(4, i < n - 1, i < n); i++) /* bug 4 */
		sum += numbers[i];
	return !(sum & 1);
}

__attribute__((noinline)) static int classify(int a, int b)
{
	if (IF_BUG(5, a > 10 || b > 10, a > 10 && b > 10)) /* bug 5 */
		return 2;
	if (IF_BUG(6, a >= b, a > b)) /* bug 6 */
		return 1;
	return 0;
}

__attribute__((noinline)) static long mixed(const int *numbers, int rest)
{
	long one = numbers[0] * 3L;
	long two = numbers[1] * 5L;
	long all = one ^ numbers[rest];

	one += two;
	two = IF_BUG(7, two * 7 - one, two * 7 + one); /* bug 7 */
	all += numbers[2] * 11L;
	return all ^ (two & one);
}

int main(int argc, char **argv)
{
	const int rounds = argc > 1 ? atoi(argv[1]) : 200;
	int numbers[8] = { 0 }, kinds[3] = { 0 }, even = 0;
	char text[16];
	long mix = 0;

	for (int i = 0; i < rounds; i++) {
		snprintf(text, sizeof(text), "w%d", i * 7 % 150);
		numbers[i % 8] = add(text)->uses + i;
		even += is_even_sum(numbers, 8);
		kinds[classify(i % 21, i % 13)]++;
		mix += mixed(numbers, i % 8);
	}
	printf("%d words, %d at most, %d even, %d %d %d, %ld\n", n_words, longest, even, kinds[0], kinds[1], kinds[2], mix);
	return 0;
}
