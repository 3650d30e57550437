/* SPDX-License-Identifier: MIT */
/* String match: how many words of the text in FILE, SIZE bytes of it, are a given key once they are enciphered.
 * Stresses: one pass over a large mapping, copies into a buffer on the thread's own stack, dense branches. */
#include "workload.h"

enum { KEYS = 4, WORD = 32 };

static const char *const keys[KEYS] = {"the", "key", "at", "of"};
static char ciphers[KEYS][WORD];
static const unsigned char *text;
static long found[MAX_THREADS][KEYS];

static size_t encipher(char *to, const unsigned char *word, size_t length)
{
	for (size_t i = 0; i < length; i++)
		to[i] = (char)(word[i] ^ (0x5a + i));
	return length;
}

/* A word belongs to the share in which it begins. */
static long word_start(long at)
{
	while (at > 0 && at < size && text[at - 1] > ' ')
		at++;
	return at;
}

static void *match(void *argument)
{
	long id = (long)argument, at = word_start(share(size, id)), end = share(size, id + 1);
	char cipher[WORD];
	while (at < end) {
		long from = at;
		while (at < size && text[at] > ' ')
			at++;
		size_t length = (size_t)(at - from);
		if (length && length < WORD && encipher(cipher, text + from, length))
			for (int key = 0; key < KEYS; key++)
				if (ciphers[key][length] == 0 && memcmp(cipher, ciphers[key], length) == 0 &&
				    strlen(keys[key]) == length)
					found[id][key]++;
		at++;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	begin(argc, argv, 3);
	text = map_input(argv[3]);
	for (int key = 0; key < KEYS; key++)
		encipher(ciphers[key], (const unsigned char *)keys[key], strlen(keys[key]));
	in_threads(match);
	for (int key = 0; key < KEYS; key++) {
		long sum = 0;
		for (int id = 0; id < threads; id++)
			sum += found[id][key];
		printf("%s %ld\n", keys[key], sum);
	}
	return 0;
}
