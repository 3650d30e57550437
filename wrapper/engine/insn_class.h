/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What an x86-64 instruction means to Intel PT (SDM vol. 3, table 33-1), from its bytes. */
#ifndef PTSOFT_INSN_CLASS_H
#define PTSOFT_INSN_CLASS_H

#include <stdint.h>

enum insn_class {
   INSN_OTHER,      /* no packet; a direct jump has none either */
   INSN_COND_JUMP,  /* one TNT bit */
   INSN_CALL,       /* direct: nothing but an entry of the return stack */
   INSN_IND_JUMP,   /* TIP */
   INSN_IND_CALL,   /* TIP, and an entry of the return stack */
   INSN_RETURN,     /* TNT bit or TIP */
   INSN_FAR,        /* out of the traced program: TIP.PGD */
};

struct insn {
   enum insn_class class;
   int is_branch;       /* any transfer, direct jumps too: executing it twice in a row is two executions */
   uint64_t target;     /* of conditional jumps and direct calls */
};

/* Classify the instruction of `size` bytes at `bytes` that runs at `ip`. Unknown ones are INSN_OTHER. */
struct insn insn_classify(const uint8_t *bytes, unsigned size, uint64_t ip);

#endif
