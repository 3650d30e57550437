/* SPDX-License-Identifier: MIT */
/*
 * Probes: patched places in the program's code that call a handler (docs/probes.md).
 *
 * Installed in the constructor, before main, from the folder that PTWEAVE_PROBES names; libraries that come later are
 * patched when the loader says that it has mapped them, before anything of them runs. Files are not touched, and no
 * process but this one: patched pages are its own. Where threads are processes, each patches what it maps.
 *
 * A hit takes no lock and allocates nothing; it may come in signal handlers. All registers, flags and errno are as they
 * were. A hit within a handler is not one: it is counted (`nested`). Whoever is not traced yet, or no more, is not hit.
 */
#ifndef PTW_PROBE_H
#define PTW_PROBE_H

#include "probe_format.h"
#include "sys.h"

#include <stdbool.h>

/* What the trampoline's call leaves on the stack, the way that keeps everything. */
struct ptw_probe_frame {
	uint64_t r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rdx, rcx, rbx, rax, rflags;
	uint64_t trampoline; /* return address into it */
	uint64_t hit;
};

enum { PTW_RED_ZONE = 128 };

/* What is done at a hit. */
struct ptw_probe_action {
	uint32_t kind; /* enum ptw_probe_kind; 0: switched off */
	uint64_t address;
	void (*function)(void *);
};

struct ptw_probes {
	struct ptw_probe_action *action; /* by number of hit */
	uint32_t hits;
	uint32_t files;
	uint32_t folder_length;
	char folder[512];
};

extern PTW_HIDDEN struct ptw_probes ptw_probes;

/* Patch what is there; from the constructor, while there is one thread. */
PTW_HIDDEN void ptw_probes_begin(void);

/* Libraries have come or gone. */
PTW_HIDDEN void ptw_probes_arrived(void);

/* Where a library was patched: what other processes need to do the same. */
struct ptw_probe_place {
	uint64_t base;
	uint64_t trampolines;
	uint32_t number; /* of its file of trampolines, plus 1; 0: it is not patched */
};

/* Of the library at `base`, in this process. */
PTW_HIDDEN struct ptw_probe_place ptw_probes_place(uint64_t base);

/* Its code in [start, end) was mapped in this process, too: patch it before anybody runs there. Signal-safe. */
PTW_HIDDEN void ptw_probes_mapped(const struct ptw_probe_place *place, uint64_t start, uint64_t end);

/* Is that the beginning of trampolines of this process? */
PTW_HIDDEN bool ptw_probes_own(uint64_t start);

/* --- probe_enter.c: what trampolines call --- */

PTW_HIDDEN void ptw_probe_enter_quick(void);
PTW_HIDDEN void ptw_probe_enter_full(void);
PTW_HIDDEN void ptw_probe_returned(void);

/* Find out how registers are kept. */
PTW_HIDDEN void ptw_probe_enter_init(void);

/* --- probe_hit.c --- */

/* The quick way, for probes that only log: no register is changed but rax. False: it has to be done the other way. */
PTW_HIDDEN __attribute__((target("general-regs-only"), no_caller_saved_registers)) bool ptw_probe_quick(uint32_t hit);
PTW_HIDDEN void ptw_probe_hit(struct ptw_probe_frame *frame);

/* A function whose return is watched has returned; where to. */
PTW_HIDDEN uint64_t ptw_probe_leave(const struct ptw_probe_frame *frame);

/* The return address that is really at `slot`, of this thread's stack, where ptw_probe_returned stands; 0 unknown. */
PTW_HIDDEN uint64_t ptw_probe_real(uint64_t slot);

#endif
