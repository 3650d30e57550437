/* SPDX-License-Identifier: MIT */
/*
 * Call frame information (.eh_frame): how to get from a code address to its caller's frame.
 *
 * Reads what compilers emit for x86-64 at call sites: a CFA from rsp or rbp, or from memory beside them (functions that
 * realign their stack), rbp saved beside the CFA or beside rbp, the return address below the CFA; and a CFA from rbx, which
 * the loader's _dl_runtime_resolve has, with rbx saved beside the CFA. Anything else is "no rule", which ends a stack early
 * and never guesses.
 *
 * Signal-safe, takes no lock and allocates nothing (_dl_find_object, glibc 2.35; without it nothing is found). Reads
 * only the unwind sections of loaded objects, within the bounds they declare.
 *
 * Format: DWARF 5 section 6.4, and the Linux Standard Base core specification for .eh_frame and .eh_frame_hdr.
 */
#ifndef PTW_CFI_H
#define PTW_CFI_H

#include "sys.h"

#include <stdbool.h>

enum ptw_cfa {
	PTW_CFA_NONE = 0,  /* no rule: the stack ends here for us */
	PTW_CFA_END,       /* the outermost frame: its return address is undefined */
	PTW_CFA_RSP,       /* CFA = rsp + offset */
	PTW_CFA_RBP,       /* CFA = rbp + offset */
	PTW_CFA_RSP_DEREF, /* CFA = *(rsp + offset) */
	PTW_CFA_RBP_DEREF, /* CFA = *(rbp + offset) */
	PTW_CFA_RBX,       /* CFA = rbx + offset */
	PTW_CFA_SIGNAL,    /* a signal frame: the interrupted registers are in the ucontext at rsp */
};

enum ptw_rbp {
	PTW_RBP_SAME = 0,
	PTW_RBP_AT_CFA, /* *(CFA + offset) */
	PTW_RBP_AT_RBP, /* *(rbp + offset) */
};

enum ptw_rbx {
	PTW_RBX_SAME = 0,
	/* 1 to 62: *(CFA - 8 * that) */
	PTW_RBX_LOST = 63, /* it cannot be told */
};

/* How to leave a frame; 8 bytes, so that a cache can hold it in a word. */
struct ptw_rule {
	int32_t cfa_offset;
	int16_t rbp_offset;
	uint8_t cfa; /* enum ptw_cfa */
	uint8_t rbx : 6; /* enum ptw_rbx */
	uint8_t rbp : 2; /* enum ptw_rbp */
};

/* The rule at `pc`, an address inside an instruction (for a return address: one less). */
PTW_HIDDEN struct ptw_rule ptw_cfi_find(uint64_t pc);

/* The same from one frame description entry; [start, end) bounds what may be read. */
PTW_HIDDEN struct ptw_rule ptw_cfi_rule(const uint8_t *start, const uint8_t *entry, const uint8_t *end,
					uint64_t pc);

#endif
