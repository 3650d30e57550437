/* SPDX-License-Identifier: MIT */
/* memcpy, memmove, memset, strcpy and string instructions into and out of fresh pages do what they say. */
#include "fresh.h"

static char pattern[FRESH_ROOM];

static void copy(char *memory)
{
	static const size_t sizes[] = {1, 7, 15, 31, 64, 65, 200, 1000, 4095, 4097, 8000};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		size_t size = sizes[i], count = size;
		memcpy(memory, pattern, size);
		PROMISE(memcmp(memory, pattern, size) == 0);
		memmove(memory + 5, memory, size - size / 2);
		PROMISE(memcmp(memory + 5, pattern, size - size / 2) == 0);
		memset(memory, 0x5a, size);
		PROMISE(memory[0] == 0x5a && memory[size - 1] == 0x5a);
		void *to = memory, *from = pattern;
		__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count)::"memory");
		PROMISE(memcmp(memory, pattern, size) == 0 && to == memory + size);
	}
	strcpy(memory, "a text");
	PROMISE(strcmp(memory, "a text") == 0 && strlen(memory) == 6);
}

int main(void)
{
	for (int i = 0; i < FRESH_ROOM; i++)
		pattern[i] = (char)(i * 7 + (i >> 8));
	with_fresh_memory(copy);
	return 0;
}
