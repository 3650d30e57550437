/* SPDX-License-Identifier: MIT */
/* Which 16 MiB of the first two gigabytes a program gets where it asks for them; it uses what it gets. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

enum { PIECE = 1 << 24 };

int main(void)
{
	for (uintptr_t at = PIECE; at < UINT32_C(1) << 31; at += PIECE) {
		char *got = mmap((void *)at, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (got == (char *)at)
			got[0] = got[PIECE - 1] = 1;
		else if (got != MAP_FAILED)
			munmap(got, PIECE);
		if (got != (char *)at)
			printf("%#zx ", (size_t)at);
	}
	printf("\n");
	return 0;
}
