// SPDX-License-Identifier: MIT
/* Calls a function with known arguments, three times. */
#include <stdint.h>
#include <stdio.h>

__attribute__((noinline)) int work(const char *text, int16_t small, uint64_t large, const void *nothing)
{
	return -100 + small + (text[0] == 'x') + (large == 0) + (nothing != NULL);
}

int main(void)
{
	int sum = 0;

	for (int i = 0; i < 3; i++) {
		char text[16];

		snprintf(text, sizeof(text), "word %d", i);
		sum += work(text, (int16_t)-i, INT64_MAX - (uint64_t)i, NULL);
	}
	return sum != -303;
}
