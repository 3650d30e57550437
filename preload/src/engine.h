/* SPDX-License-Identifier: MIT */
/* Is the program simulated by an engine (wrapper/engine), and not run by the processor? Signal-safe. */
#ifndef PTW_ENGINE_H
#define PTW_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

/* Valgrind's question for that (its client requests): to a processor it rotates a register once around. */
static inline bool ptw_under_engine(void)
{
	volatile uint64_t request[6] = {0x1001 /* running on Valgrind? */, 0, 0, 0, 0, 0};
	uint64_t answer = 0;
	__asm__ volatile("rolq $3, %%rdi\n\trolq $13, %%rdi\n\trolq $61, %%rdi\n\trolq $51, %%rdi\n\txchgq %%rbx, %%rbx"
			 : "+d"(answer)
			 : "a"(request)
			 : "cc", "memory", "rdi");
	return answer != 0;
}

#endif
