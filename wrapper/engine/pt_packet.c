/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See pt_packet.h for what this guarantees. */
#include "pt_packet.h"

/* Opcodes (SDM vol. 3, table 33-15 on). The IP packets carry their compression in the upper three bits. */
enum {
   OPC_TIP = 0x0d, OPC_TIP_PGE = 0x11, OPC_TIP_PGD = 0x01, OPC_FUP = 0x1d,
   OPC_TSC = 0x19, OPC_MODE = 0x99, MODE_EXEC_64 = 0x01,
   OPC_PSB = 0x8202, OPC_PSBEND = 0x2302, OPC_TNT64 = 0xa302,
};

enum { TNT8_BITS = 6, TNT64_BITS = 47 };

/* Orders stores as written: the reader is another process that looks after this one stopped (x86 keeps store order). */
#define KEEP_ORDER() __asm__ volatile("" ::: "memory")

static inline void put16(uint8_t *to, uint16_t value) { __builtin_memcpy(to, &value, sizeof value); }
static inline void put32(uint8_t *to, uint32_t value) { __builtin_memcpy(to, &value, sizeof value); }
static inline void put64(uint8_t *to, uint64_t value) { __builtin_memcpy(to, &value, sizeof value); }

static inline uint64_t read_tsc(void)
{
   uint32_t low, high;

   __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
   return (uint64_t)high << 32 | low;
}

/* Publish everything up to `to`, the pending branches included (the caller encoded them first). */
static inline void commit(struct pt_encoder *encoder, uint8_t *to)
{
   KEEP_ORDER();
   encoder->pos = to;              /* from here on the old `tnt` is void: tnt_pos differs */
   KEEP_ORDER();
   encoder->tnt = PT_TNT_EMPTY;
   KEEP_ORDER();
   encoder->tnt_pos = to;
}

static void set_limit(struct pt_encoder *encoder)
{
   uint64_t due = encoder->last_psb + encoder->psb_period, size = (uint64_t)(encoder->end - encoder->start);

   due = due > encoder->window ? due - encoder->window : 0;
   encoder->limit = due < size ? encoder->start + due : encoder->end;
}

static __attribute__((noinline)) void make_room(struct pt_encoder *encoder)
{
   if (encoder->pos >= encoder->end)
      encoder->refill(encoder);
}

static unsigned encode_many(uint64_t tnt, unsigned bits, uint8_t *to)
{
   unsigned size = 0;

   if (bits > 7 * TNT8_BITS) {     /* eight short packets or one long: the same size, fewer packets */
      put64(to, ((tnt & (((uint64_t)1 << bits) - 1)) | (uint64_t)1 << bits) << 16 | OPC_TNT64);
      return 8;
   }
   while (bits > 0) {
      unsigned now = bits > TNT8_BITS ? TNT8_BITS : bits;

      bits -= now;
      to[size++] = (uint8_t)((((tnt >> bits) & ((1u << now) - 1)) | 1u << now) << 1);
   }
   return size;
}

static inline unsigned encode_tnt(uint64_t tnt, uint8_t *to)
{
   unsigned bits;

   if (tnt <= PT_TNT_EMPTY)
      return 0;
   bits = TNT64_BITS - (unsigned)__builtin_clzll(tnt);
   if (bits > TNT8_BITS)
      return encode_many(tnt, bits, to);
   to[0] = (uint8_t)(((tnt & ((1u << bits) - 1)) | 1u << bits) << 1);
   return 1;
}

unsigned pt_tnt_encode(uint64_t tnt, uint8_t *to)
{
   return encode_tnt(tnt, to);
}

/* Room for one operation, and the pending branches in it. */
static inline uint8_t *begin(struct pt_encoder *encoder)
{
   if (__builtin_expect(encoder->pos >= encoder->limit, 0))
      make_room(encoder);
   return encoder->pos + encode_tnt(encoder->tnt, encoder->pos);
}

/* An IP packet with the shortest encoding that the last IP allows. */
static inline uint8_t *put_ip(struct pt_encoder *encoder, uint8_t *to, uint8_t opcode, uint64_t ip)
{
   uint64_t changed = ip ^ encoder->last_ip;

   encoder->last_ip = ip;
   if (changed >> 16 == 0) {
      to[0] = (uint8_t)(1 << 5 | opcode);
      put16(to + 1, (uint16_t)ip);
      return to + 3;
   }
   if (changed >> 32 == 0) {
      to[0] = (uint8_t)(2 << 5 | opcode);
      put32(to + 1, (uint32_t)ip);
      return to + 5;
   }
   if ((uint64_t)((int64_t)(ip << 16) >> 16) == ip) {
      to[0] = (uint8_t)(3 << 5 | opcode);
      put32(to + 1, (uint32_t)ip);
      put16(to + 5, (uint16_t)(ip >> 32));
      return to + 7;
   }
   to[0] = (uint8_t)(6 << 5 | opcode);
   put64(to + 1, ip);
   return to + 9;
}

static inline uint8_t *put_mode(uint8_t *to)
{
   to[0] = OPC_MODE;
   to[1] = MODE_EXEC_64;
   return to + 2;
}

static inline uint8_t *put_tsc(struct pt_encoder *encoder, uint8_t *to)
{
   encoder->last_tsc = read_tsc();
   to[0] = OPC_TSC;
   put64(to + 1, encoder->last_tsc); /* seven bytes count, the eighth is written over */
   return to + 8;
}

static void forget_calls(struct pt_encoder *encoder)
{
   unsigned i;

   for (i = 0; i < PT_RET_STACK; i++)
      encoder->ret[i] = PT_RET_NONE;
}

static uint8_t *put_psb(struct pt_encoder *encoder, uint8_t *to, uint64_t ip)
{
   unsigned i;

   encoder->last_psb = encoder->window + (uint64_t)(to - encoder->start);
   for (i = 0; i < 8; i++)
      put16(to + 2 * i, OPC_PSB);
   to = put_tsc(encoder, to + 16);
   encoder->last_ip = 0;
   forget_calls(encoder); /* a segment decodes on its own */
   set_limit(encoder);
   encoder->need_mode = !encoder->enabled;
   if (encoder->enabled)
      to = put_ip(encoder, put_mode(to), OPC_FUP, ip);
   put16(to, OPC_PSBEND);
   return to + 2;
}

void pt_encoder_init(struct pt_encoder *encoder, uint8_t *start, uint64_t size, uint64_t psb_period, int compress,
                     void (*refill)(struct pt_encoder *))
{
   __builtin_memset(encoder, 0, sizeof *encoder);
   encoder->tnt = PT_TNT_EMPTY;
   encoder->psb_period = psb_period;
   encoder->compress = compress != 0;
   encoder->need_mode = 1;
   encoder->refill = refill;
   forget_calls(encoder);
   pt_rebase(encoder, start, size, 0);
}

void pt_rebase(struct pt_encoder *encoder, uint8_t *start, uint64_t size, uint64_t window)
{
   encoder->window = window;
   encoder->start = start;
   encoder->end = start + size - PT_OP_MAX;
   encoder->pos = encoder->tnt_pos = start;
   set_limit(encoder);
}

uint64_t pt_offset(const struct pt_encoder *encoder)
{
   return encoder->window + (uint64_t)(encoder->pos - encoder->start);
}

void pt_tnt_flush(struct pt_encoder *encoder)
{
   uint8_t *to = encoder->pos;

   if (__builtin_expect((int64_t)encoder->tnt >= 0 || to >= encoder->limit, 0)) {
      commit(encoder, begin(encoder));
      return;
   }
   put64(to, encoder->tnt << 16 | (uint64_t)1 << 63 | OPC_TNT64); /* a full word: 47 branches, and the stop bit */
   commit(encoder, to + 8);
}

void pt_psb(struct pt_encoder *encoder, uint64_t ip)
{
   uint8_t *to = begin(encoder);

   commit(encoder, put_psb(encoder, to, ip));
}

int pt_psb_due(const struct pt_encoder *encoder)
{
   return pt_offset(encoder) - encoder->last_psb >= encoder->psb_period;
}

static __attribute__((noinline)) void tip_when_due(struct pt_encoder *encoder, uint64_t ip)
{
   uint8_t *to = put_ip(encoder, begin(encoder), OPC_TIP, ip);

   if (pt_psb_due(encoder))
      to = put_psb(encoder, to, ip);
   commit(encoder, to);
}

void pt_tip(struct pt_encoder *encoder, uint64_t ip)
{
   uint8_t *to = encoder->pos;

   if (__builtin_expect(to >= encoder->limit, 0)) {
      tip_when_due(encoder, ip);
      return;
   }
   to += encode_tnt(encoder->tnt, to);
   commit(encoder, put_ip(encoder, to, OPC_TIP, ip));
}

enum { RET_MASK = 8 * (PT_RET_STACK - 1) };

void pt_call(struct pt_encoder *encoder, uint64_t return_address)
{
   encoder->ret[encoder->ret_at / 8] = return_address;
   encoder->ret_at = (encoder->ret_at + 8) & RET_MASK;
}

void pt_ret(struct pt_encoder *encoder, uint64_t ip)
{
   uint64_t top = (encoder->ret_at - 8) & RET_MASK, entry = encoder->ret[top / 8];

   encoder->ret[top / 8] = PT_RET_NONE;
   encoder->ret_at = top;
   if (entry == ip && encoder->compress)
      pt_branch(encoder, 1);
   else
      pt_ret_missed(encoder, ip, entry);
}

/* Decoders differ here: perf takes the entry off its return stack, libipt leaves it there. Neither needs its stack for
   returns to earlier calls when these are TIPs. An empty stack needs no emptying. */
void pt_ret_missed(struct pt_encoder *encoder, uint64_t ip, uint64_t entry)
{
   if (entry != PT_RET_NONE)
      forget_calls(encoder);
   pt_tip(encoder, ip);
}

void pt_branch(struct pt_encoder *encoder, int taken)
{
   uint64_t tnt = encoder->tnt << 1 | (taken != 0);

   encoder->tnt = tnt;
   if ((int64_t)tnt < 0)
      pt_tnt_flush(encoder);
}

void pt_disable(struct pt_encoder *encoder)
{
   uint8_t *to;

   if (!encoder->enabled)
      return;
   to = begin(encoder);
   *to++ = OPC_TIP_PGD;
   encoder->enabled = 0;
   commit(encoder, to);
}

void pt_disable_at(struct pt_encoder *encoder, uint64_t ip)
{
   uint8_t *to;

   if (!encoder->enabled)
      return;
   to = put_ip(encoder, begin(encoder), OPC_FUP, ip);
   *to++ = OPC_TIP_PGD;
   encoder->enabled = 0;
   commit(encoder, to);
}

void pt_enable(struct pt_encoder *encoder, uint64_t ip)
{
   uint8_t *to;

   if (encoder->enabled)
      return;
   to = begin(encoder);
   to = pt_psb_due(encoder) ? put_psb(encoder, to, ip) : put_tsc(encoder, to);
   if (encoder->need_mode)
      to = put_mode(to);
   encoder->need_mode = 0;
   to = put_ip(encoder, to, OPC_TIP_PGE, ip);
   encoder->enabled = 1;
   commit(encoder, to);
}

void pt_time(struct pt_encoder *encoder)
{
   commit(encoder, put_tsc(encoder, begin(encoder)));
}
