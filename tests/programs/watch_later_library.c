/* SPDX-License-Identifier: MIT */
/* The library of watch_later.c. */
volatile long stored = 7;
volatile long beside = 7;

__attribute__((constructor)) static void begin(void) { stored = 1; }

void store(long value);
void store(long value)
{
	stored = value;
	beside = value;
}
