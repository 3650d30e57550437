/* SPDX-License-Identifier: MIT */
/*
 * Call stacks: return addresses from a frame outward, by call frame information.
 *
 * The rule of each return address is remembered (in process mode for all processes), so a stack seen before costs a few
 * nanoseconds a frame. A stack ends early where there is no rule (code made at run time, hand-written assembly). The one
 * that is reached through rbx, the loader's, has all of its frames walked a second time: no other pays for rbx.
 *
 * Signal-safe, lock-free, no allocation, about 200 bytes of stack. Memory is read only above the stack pointer and
 * below the thread's stack's end where that is known. After code was unmapped, ptw_unwind_forget must be called.
 */
#ifndef PTW_UNWIND_H
#define PTW_UNWIND_H

#include "cfi.h"

/* A place in the program: the registers the rules need. */
struct ptw_frame {
	uint64_t pc; /* a return address */
	uint64_t sp; /* just after the return */
	uint64_t bp;
	uint64_t bx; /* where it is known */
	bool bx_known;
};

/* Functions may have been made to return to `address`; `real` knows where the one returns whose return address is at
 * `slot`, of the calling thread's stack (0: it does not). */
struct ptw_unwind_detour {
	uint64_t address;
	uint64_t (*real)(uint64_t slot);
};
extern PTW_HIDDEN struct ptw_unwind_detour ptw_unwind_detour;

/* Where the function returns whose return address is at `slot`. */
static inline uint64_t ptw_returns_to(const uint64_t *slot)
{
	return __builtin_expect(*slot == ptw_unwind_detour.address, 0) ? ptw_unwind_detour.real((uint64_t)slot) : *slot;
}

/* Where the function returns this is written in (which then has a frame pointer). */
#define PTW_RETURNS_TO ptw_returns_to((const uint64_t *)__builtin_frame_address(0) + 1)

/* The frame that called it. */
#define PTW_CALLER                                                                                       \
	((struct ptw_frame){PTW_RETURNS_TO,                                                              \
			    (uint64_t)__builtin_frame_address(0) + 16,                                  \
			    ((uint64_t *)__builtin_frame_address(0))[0],                                \
			    0,                                                                          \
			    false})

/* Return addresses into stack[max], innermost first, beginning with from->pc; returns how many. `top` is the end of
 * the thread's stack, 0 unknown. */
PTW_HIDDEN unsigned ptw_unwind(const struct ptw_frame *from, uint64_t top, uint64_t *stack, unsigned max);

/* Process mode: rules are known to all processes from now on, but for those of code in `size` bytes from `from` on: what
 * lies there is not the same in each. */
PTW_HIDDEN void ptw_unwind_share(uint64_t from, uint64_t size);

/* Forget all rules. */
PTW_HIDDEN void ptw_unwind_forget(void);

#endif
