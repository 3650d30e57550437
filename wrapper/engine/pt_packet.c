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

static inline uint8_t *begin(struct pt_encoder *encoder)
{
   if (__builtin_expect(encoder->pos >= encoder->limit, 0))
      encoder->refill(encoder);
   return encoder->pos + pt_tnt_encode(encoder->tnt, encoder->pos);
}

unsigned pt_tnt_encode(uint64_t tnt, uint8_t *to)
{
   unsigned bits, size = 0;

   if (tnt <= PT_TNT_EMPTY)
      return 0;
   bits = TNT64_BITS - (unsigned)__builtin_clzll(tnt);
   if (bits <= TNT8_BITS) {
      to[0] = (uint8_t)(((tnt & ((1u << bits) - 1)) | 1u << bits) << 1);
      return 1;
   }
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

static uint8_t *put_psb(struct pt_encoder *encoder, uint8_t *to, uint64_t ip)
{
   unsigned i;

   encoder->last_psb = encoder->window + (uint64_t)(to - encoder->start);
   for (i = 0; i < 8; i++)
      put16(to + 2 * i, OPC_PSB);
   to = put_tsc(encoder, to + 16);
   encoder->last_ip = 0;
   __builtin_memset(encoder->ret, 0, sizeof encoder->ret); /* a segment decodes on its own */
   encoder->need_mode = !encoder->enabled;
   if (encoder->enabled)
      to = put_ip(encoder, put_mode(to), OPC_FUP, ip);
   put16(to, OPC_PSBEND);
   return to + 2;
}

void pt_encoder_init(struct pt_encoder *encoder, uint8_t *start, uint8_t *limit, uint64_t psb_period,
                     int compress, void (*refill)(struct pt_encoder *))
{
   __builtin_memset(encoder, 0, sizeof *encoder);
   encoder->tnt = PT_TNT_EMPTY;
   encoder->start = encoder->pos = encoder->tnt_pos = start;
   encoder->limit = limit;
   encoder->psb_period = psb_period;
   encoder->compress = compress != 0;
   encoder->need_mode = 1;
   encoder->refill = refill;
}

uint64_t pt_offset(const struct pt_encoder *encoder)
{
   return encoder->window + (uint64_t)(encoder->pos - encoder->start);
}

void pt_tnt_flush(struct pt_encoder *encoder)
{
   commit(encoder, begin(encoder));
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

void pt_tip(struct pt_encoder *encoder, uint64_t ip)
{
   uint8_t *to = begin(encoder);

   to = put_ip(encoder, to, OPC_TIP, ip);
   if (__builtin_expect(pt_psb_due(encoder), 0))
      to = put_psb(encoder, to, ip);
   commit(encoder, to);
}

void pt_call(struct pt_encoder *encoder, uint64_t return_address)
{
   encoder->ret[encoder->ret_top++ % PT_RET_STACK] = return_address;
}

void pt_ret(struct pt_encoder *encoder, uint64_t ip)
{
   uint64_t *top = &encoder->ret[(encoder->ret_top - 1) % PT_RET_STACK];

   if (*top != ip || !encoder->compress) {
      pt_tip(encoder, ip);
      return;
   }
   *top = 0;
   encoder->ret_top--;
   pt_branch(encoder, 1);
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
