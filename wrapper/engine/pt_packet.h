/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Encoder of Intel PT packets (SDM vol. 3, chapter 33): one instance per traced thread.
 *
 * Freestanding: needs no C library and allocates nothing. One thread at a time uses an instance.
 *
 * Kill-safe: the instance lives in shared memory, and whoever reads it after its owner was killed at any
 * instruction finds an exact prefix of the stream. The rule for that: the bytes up to `pos` are always whole
 * packets, and the branches collected in `tnt` belong behind them exactly when `tnt_pos == pos`. Every function
 * writes its bytes behind `pos` first and publishes them with a single store to `pos`.
 */
#ifndef PTSOFT_PT_PACKET_H
#define PTSOFT_PT_PACKET_H

#include <stdint.h>

enum {
   PT_RET_STACK = 64,    /* entries of the return stack that return compression uses */
   PT_OP_MAX    = 128,   /* no function writes more bytes than this behind `pos` */
   PT_TNT_MAX   = 8,     /* bytes that pending branches take at most */
};

/* A used or empty entry of the return stack: no address, not even a wrong one that a broken stack holds. */
#define PT_RET_NONE 0x8000dead8000deadULL

/* `tnt` with no branch in it: a sentinel that reaches bit 63 after 47 branches, the most one packet holds. */
#define PT_TNT_EMPTY ((uint64_t)1 << 16)

struct pt_encoder {
   uint64_t tnt;         /* sentinel bit, then branches not yet in a packet, oldest first */
   uint8_t *pos;         /* where the next packet goes */
   uint8_t *tnt_pos;     /* where the branches in `tnt` belong; void when it differs from `pos` */
   uint64_t ret_at;      /* where the next call goes in `ret`, in bytes: 0 to 8 * (PT_RET_STACK - 1) */
   uint8_t *start;       /* the buffer */
   uint64_t window;      /* offset of `start` in the stream */
   uint8_t *limit;       /* at or behind this something is due: a PSB, or `refill` */
   uint8_t *end;         /* at or behind this `refill` is due */
   uint64_t last_ip;     /* what IP compression refers to */
   uint64_t last_psb;    /* offset of the last PSB in the stream */
   uint64_t psb_period;  /* bytes from one PSB to the next */
   uint64_t last_tsc;    /* last TSC written */
   uint32_t enabled;     /* between TIP.PGE and TIP.PGD */
   uint32_t need_mode;   /* a MODE.Exec is due at the next TIP.PGE */
   uint32_t compress;    /* compress returns */
   uint32_t pad;
   void (*refill)(struct pt_encoder *); /* makes room: moves the buffer on with pt_rebase */
   uint64_t ret[PT_RET_STACK];          /* return addresses; PT_RET_NONE once used */
};

/* Prepare an encoder that writes into the `size` (more than PT_OP_MAX) bytes at `start`. */
void pt_encoder_init(struct pt_encoder *encoder, uint8_t *start, uint64_t size, uint64_t psb_period, int compress,
                     void (*refill)(struct pt_encoder *));

/* Go on in the `size` bytes at `start`, which are at offset `window` of the stream. Pending branches stay. */
void pt_rebase(struct pt_encoder *encoder, uint8_t *start, uint64_t size, uint64_t window);

/* Offset in the stream of the next packet, pending branches not counted. */
uint64_t pt_offset(const struct pt_encoder *encoder);

/* Encode the branches in `tnt` at `to`; returns the bytes written, 0 to PT_TNT_MAX. */
unsigned pt_tnt_encode(uint64_t tnt, uint8_t *to);

/* Write the pending branches. */
void pt_tnt_flush(struct pt_encoder *encoder);

/* PSB+ : with the current ip while enabled, without one otherwise. Flushes first; forgets the return stack. */
void pt_psb(struct pt_encoder *encoder, uint64_t ip);

/* True when the next PSB is due. */
int pt_psb_due(const struct pt_encoder *encoder);

/* An indirect jump or call to `ip`. */
void pt_tip(struct pt_encoder *encoder, uint64_t ip);

/* A call that returns to `return_address`: remember it for return compression. */
void pt_call(struct pt_encoder *encoder, uint64_t return_address);

/* A return to `ip`: one taken bit where it goes back to its call, else a TIP. */
void pt_ret(struct pt_encoder *encoder, uint64_t ip);

/* A return to `ip` for which `entry` was taken off the return stack, and which it is not: forgets the rest of the stack,
   and a TIP. */
void pt_ret_missed(struct pt_encoder *encoder, uint64_t ip, uint64_t entry);

/* A branch: `tnt` gets one bit, and a full word is flushed. Generated code keeps `tnt` in a register meanwhile (see
   tnt_register.h), and flushes a full word before the next bit. */
void pt_branch(struct pt_encoder *encoder, int taken);

/* A far transfer out of the traced program (system call, int3): TIP.PGD. Does nothing while disabled. */
void pt_disable(struct pt_encoder *encoder);

/* An asynchronous event before the instruction at `ip`: FUP, TIP.PGD. Does nothing while disabled. */
void pt_disable_at(struct pt_encoder *encoder, uint64_t ip);

/* Execution goes on at `ip`: TSC (or a PSB when due), TIP.PGE. Does nothing while enabled. */
void pt_enable(struct pt_encoder *encoder, uint64_t ip);

/* A TSC packet at the current place. */
void pt_time(struct pt_encoder *encoder);

#endif
