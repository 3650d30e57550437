/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Unit test of the engine's packet encoder, compiled with it: what it writes is read back with libipt's packet
 * decoder. `packet_check TEST` runs one test and exits 0, or says what differs and exits 1. `list` names them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <intel-pt.h>

#include "pt_packet.h"

enum { BUFFER = 1 << 16, EVENTS = 4096 };

/* What a stream says, without how it says it. */
enum kind { BRANCH, TIP, PGE, PGD, FUP, PSB };

struct event { uint64_t kind, value; }; /* no padding: compared as bytes */
struct events { unsigned count; struct event list[EVENTS]; };

static int failures;

#define CHECK(condition, ...) do { if (!(condition)) { failures++; fprintf(stderr, "%s:%d: %s: ", __FILE__, \
   __LINE__, #condition); fprintf(stderr, __VA_ARGS__); fprintf(stderr, "\n"); } } while (0)

static void add(struct events *events, enum kind kind, uint64_t value)
{
   if (events->count < EVENTS)
      events->list[events->count++] = (struct event){ kind, value };
}

static uint64_t full_ip(uint64_t *last, const struct pt_packet_ip *packet, int *suppressed)
{
   uint64_t ip = packet->ip;

   *suppressed = packet->ipc == pt_ipc_suppressed;
   switch (packet->ipc) {
   case pt_ipc_suppressed: return 0;
   case pt_ipc_update_16: *last = (*last & ~UINT64_C(0xffff)) | (ip & 0xffff); break;
   case pt_ipc_update_32: *last = (*last & ~UINT64_C(0xffffffff)) | (ip & 0xffffffff); break;
   case pt_ipc_sext_48: *last = (uint64_t)((int64_t)(ip << 16) >> 16); break;
   case pt_ipc_update_48: *last = (*last & ~UINT64_C(0xffffffffffff)) | ip; break;
   case pt_ipc_full: *last = ip; break;
   }
   return *last;
}

/* Decode [begin, end); returns libipt's last status: -pte_eos at an orderly end. */
static int read_back(uint8_t *begin, const uint8_t *end, struct events *events)
{
   struct pt_packet_decoder *decoder;
   struct pt_config config;
   uint64_t last = 0;
   int status;

   events->count = 0;
   if (begin == end)
      return -pte_eos;
   pt_config_init(&config);
   config.begin = begin;
   config.end = (uint8_t *)(uintptr_t)end;
   decoder = pt_pkt_alloc_decoder(&config);
   status = pt_pkt_sync_set(decoder, 0);
   while (status >= 0) {
      struct pt_packet packet;
      int suppressed, i;
      uint64_t ip;

      status = pt_pkt_next(decoder, &packet, sizeof packet);
      if (status < 0)
         break;
      switch (packet.type) {
      case ppt_psb:
         last = 0;
         add(events, PSB, 0);
         break;
      case ppt_tnt_8: case ppt_tnt_64:
         for (i = packet.payload.tnt.bit_size - 1; i >= 0; i--)
            add(events, BRANCH, packet.payload.tnt.payload >> i & 1);
         break;
      case ppt_tip: case ppt_tip_pge: case ppt_tip_pgd: case ppt_fup:
         ip = full_ip(&last, &packet.payload.ip, &suppressed);
         add(events, packet.type == ppt_tip ? TIP : packet.type == ppt_tip_pge ? PGE
             : packet.type == ppt_tip_pgd ? PGD : FUP, suppressed ? 0 : ip);
         break;
      default:
         break;
      }
   }
   pt_pkt_free_decoder(decoder);
   return status;
}

static struct pt_encoder encoder;
static uint8_t buffer[BUFFER];
static unsigned refills;

static void no_refill(struct pt_encoder *one)
{
   (void)one;
   refills++;
}

static void begin_stream(uint64_t psb_period, int compress)
{
   pt_encoder_init(&encoder, buffer, sizeof buffer, psb_period, compress, no_refill);
   pt_psb(&encoder, 0);
}

static void expect(const struct events *wanted)
{
   static struct events found;
   unsigned i;
   int status;

   pt_tnt_flush(&encoder);
   status = read_back(buffer, encoder.pos, &found);
   CHECK(status == -pte_eos, "status %s", pt_errstr(pt_errcode(status)));
   CHECK(found.count == wanted->count, "%u events, not %u", found.count, wanted->count);
   for (i = 0; i < wanted->count && i < found.count; i++)
      CHECK(found.list[i].kind == wanted->list[i].kind && found.list[i].value == wanted->list[i].value,
            "event %u is (%" PRIu64 ", %#" PRIx64 "), not (%" PRIu64 ", %#" PRIx64 ")", i, found.list[i].kind,
            found.list[i].value, wanted->list[i].kind, wanted->list[i].value);
}

/* Every number of pending branches, up to a full word and beyond, comes back bit by bit. */
static void branches_of_every_length(void)
{
   static struct events wanted;
   unsigned length, i;

   for (length = 0; length < 150; length++) {
      begin_stream(1 << 20, 1);
      wanted.count = 0;
      add(&wanted, PSB, 0);
      for (i = 0; i < length; i++) {
         int taken = (length * 7 + i * i + i / 3) % 3 == 0;

         pt_branch(&encoder, taken);
         add(&wanted, BRANCH, (uint64_t)taken);
      }
      expect(&wanted);
   }
}

/* Targets at every distance: each IP compression is used and undone. */
static void targets_at_every_distance(void)
{
   static struct events wanted;
   static const uint64_t ips[] = {
      0x401000, 0x401abc, 0x4f1000, 0x7f0000401000, 0x7f0000401004, 0xffffffff81000000, 0x401000, 0,
      0x8000000000000000, 0x123456789abcdef0, 0x401000, 0xffffffffffffffff, 0x7fffffffffff, 0x800000000000,
   };
   unsigned i;

   begin_stream(1 << 20, 1);
   wanted.count = 0;
   add(&wanted, PSB, 0);
   for (i = 0; i < sizeof ips / sizeof *ips; i++) {
      pt_branch(&encoder, i % 2);
      pt_tip(&encoder, ips[i]);
      add(&wanted, BRANCH, i % 2);
      add(&wanted, TIP, ips[i]);
   }
   expect(&wanted);
}

/* Calls nested deeper than the return stack: the innermost 64 returns are compressed, the others are TIPs. */
static void returns_are_compressed(void)
{
   enum { DEPTH = 100 };
   static struct events wanted;
   unsigned i;

   begin_stream(1 << 20, 1);
   wanted.count = 0;
   add(&wanted, PSB, 0);
   for (i = 0; i < DEPTH; i++)
      pt_call(&encoder, 0x1000 + i);
   for (i = DEPTH; i-- > 0;) {
      pt_ret(&encoder, 0x1000 + i);
      add(&wanted, i >= DEPTH - PT_RET_STACK ? BRANCH : TIP, i >= DEPTH - PT_RET_STACK ? 1 : 0x1000 + i);
   }
   pt_ret(&encoder, 0);  /* no call: a TIP, even to 0 */
   add(&wanted, TIP, 0);
   pt_call(&encoder, 0x2000);
   pt_ret(&encoder, 0x2004); /* elsewhere */
   add(&wanted, TIP, 0x2004);
   pt_call(&encoder, 0x3000);
   pt_psb(&encoder, 0x2004); /* the return stack does not outlive a PSB */
   pt_ret(&encoder, 0x3000);
   add(&wanted, PSB, 0);
   add(&wanted, TIP, 0x3000);
   expect(&wanted);
}

/* perf takes an entry off its return stack at every return, libipt only at those that are a bit. So behind a return that
   goes elsewhere, the returns to calls before it are TIPs: a bit would lead perf astray. */
static void returns_to_calls_before_one_that_went_elsewhere_are_tips(void)
{
   static struct events wanted;

   begin_stream(1 << 20, 1);
   wanted.count = 0;
   add(&wanted, PSB, 0);
   pt_call(&encoder, 0x1000);
   pt_call(&encoder, 0x2000);
   pt_ret(&encoder, 0x5000); /* as a signal's handler does, to what returns from the signal */
   add(&wanted, TIP, 0x5000);
   pt_ret(&encoder, 0x2000);
   add(&wanted, TIP, 0x2000);
   pt_call(&encoder, 0x3000); /* a call behind it is as any */
   pt_ret(&encoder, 0x3000);
   add(&wanted, BRANCH, 1);
   pt_ret(&encoder, 0x1000);
   add(&wanted, TIP, 0x1000);
   expect(&wanted);
}

static void events_turn_tracing_off_and_on(void)
{
   static struct events wanted;

   begin_stream(1 << 20, 1);
   wanted.count = 0;
   add(&wanted, PSB, 0);
   pt_disable(&encoder);               /* off already: nothing */
   pt_enable(&encoder, 0x401000);
   pt_enable(&encoder, 0x999999);      /* on already: nothing */
   add(&wanted, PGE, 0x401000);
   pt_branch(&encoder, 1);
   pt_disable(&encoder);
   add(&wanted, BRANCH, 1);
   add(&wanted, PGD, 0);
   pt_enable(&encoder, 0x401002);
   add(&wanted, PGE, 0x401002);
   pt_disable_at(&encoder, 0x401010);
   add(&wanted, FUP, 0x401010);
   add(&wanted, PGD, 0);
   pt_disable_at(&encoder, 0x401010);
   expect(&wanted);
}

/* PSBs come as often as asked for, with the current ip while enabled, and each is where pt_psb_due wants it. */
static void psbs_come_in_time(void)
{
   enum { PERIOD = 512, TIPS = 1000 };
   static struct events found;
   unsigned i, psbs = 0, fups = 0;

   begin_stream(PERIOD, 1);
   pt_enable(&encoder, 0x401000);
   for (i = 0; i < TIPS; i++)
      pt_tip(&encoder, 0x401000 + 0x10000 * (i % 7));
   CHECK(read_back(buffer, encoder.pos, &found) == -pte_eos, "not whole");
   for (i = 0; i < found.count; i++) {
      psbs += found.list[i].kind == PSB;
      fups += found.list[i].kind == FUP;
   }
   CHECK(psbs == (unsigned)((encoder.pos - buffer) / PERIOD) + 1 || psbs == (unsigned)((encoder.pos - buffer) / PERIOD),
         "%u PSBs in %ld bytes", psbs, (long)(encoder.pos - buffer));
   CHECK(fups == psbs - 1, "%u FUPs in %u PSBs", fups, psbs);
}

static void move_back(struct pt_encoder *one)
{
   uint64_t window = pt_offset(one);

   refills++;
   pt_rebase(one, buffer, 512, window);
}

/* A buffer that is used again and again is never overrun, and offsets go on. */
static void small_buffers_are_refilled(void)
{
   uint64_t offset = 0;
   unsigned i;

   refills = 0;
   memset(buffer, 0xaa, sizeof buffer);
   pt_encoder_init(&encoder, buffer, 512, 300, 1, move_back);
   pt_psb(&encoder, 0);
   pt_enable(&encoder, 0x401000);
   for (i = 0; i < 5000; i++) {
      pt_branch(&encoder, i & 1);
      if (i % 3 == 0)
         pt_tip(&encoder, 0x401000 + UINT64_C(0x100000000) * i);
      CHECK(pt_offset(&encoder) >= offset, "offset goes back");
      offset = pt_offset(&encoder);
   }
   CHECK(refills > 10, "%u refills", refills);
   for (i = 512; i < sizeof buffer; i++)
      CHECK(buffer[i] == 0xaa, "byte %u overrun", i);
}

/* --- killed at any instruction --------------------------------------------------------------------------------- */

struct shared {
   struct pt_encoder encoder;
   uint8_t buffer[4096];
};

static void scenario(struct pt_encoder *one)
{
   unsigned i;

   pt_enable(one, 0x401000);
   for (i = 0; i < 60; i++)
      pt_branch(one, i % 3 == 0);
   pt_call(one, 0x402000);
   pt_tip(one, 0x7f0000001000);
   pt_branch(one, 1);
   pt_ret(one, 0x402000);
   pt_ret(one, 0x403000);
   pt_psb(one, 0x403000);
   pt_branch(one, 0);
   pt_disable(one);
   pt_enable(one, 0x403010);
   pt_branch(one, 1);
   pt_disable_at(one, 0x403020);
}

/* What is there now, as a reader finds it: whole packets, then the branches pending behind them. */
static void snapshot(const struct shared *shared, struct events *events)
{
   static uint8_t copy[sizeof shared->buffer + PT_TNT_MAX];
   const struct pt_encoder *one = &shared->encoder;
   unsigned size = (unsigned)(one->pos - shared->buffer);
   int status;

   memcpy(copy, shared->buffer, size);
   if (one->tnt_pos == one->pos)
      size += pt_tnt_encode(one->tnt, copy + size);
   status = read_back(copy, copy + size, events);
   CHECK(status == -pte_eos, "not whole packets: %s", pt_errstr(pt_errcode(status)));
}

static unsigned is_prefix(const struct events *part, const struct events *whole)
{
   return part->count <= whole->count && memcmp(part->list, whole->list, part->count * sizeof *part->list) == 0;
}

static pid_t run_stepped(struct shared *shared)
{
   pid_t child = fork();

   if (child == 0) {
      ptrace(PTRACE_TRACEME, 0, 0, 0);
      raise(SIGSTOP);
      scenario(&shared->encoder);
      _exit(0);
   }
   return child;
}

static void killed_anywhere_leaves_a_prefix(void)
{
   static struct events whole, now, before;
   struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
   unsigned steps = 0, moments = 0;
   pid_t child;
   int status;

   pt_encoder_init(&shared->encoder, shared->buffer, sizeof shared->buffer, 1 << 20, 1, no_refill);
   pt_psb(&shared->encoder, 0);
   scenario(&shared->encoder);
   snapshot(shared, &whole);
   pt_encoder_init(&shared->encoder, shared->buffer, sizeof shared->buffer, 1 << 20, 1, no_refill);
   pt_psb(&shared->encoder, 0);
   before.count = 0;
   child = run_stepped(shared);
   while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
      snapshot(shared, &now);
      CHECK(is_prefix(&now, &whole), "step %u: %u events are no prefix", steps, now.count);
      CHECK(now.count >= before.count, "step %u: events vanish", steps);
      moments += now.count != before.count;
      before = now;
      if (failures > 5)
         break;
      steps++;
      ptrace(PTRACE_SINGLESTEP, child, 0, 0);
   }
   CHECK(now.count == whole.count, "%u of %u events at the end", now.count, whole.count);
   CHECK(steps > 1000 && moments > 60, "%u steps, %u moments", steps, moments);
   munmap(shared, sizeof *shared);
}

/* The control: branches that are counted although their packet is written already are noticed. */
static void control_counting_branches_twice_is_noticed(void)
{
   static struct events whole, now;
   struct shared shared;

   pt_encoder_init(&shared.encoder, shared.buffer, sizeof shared.buffer, 1 << 20, 1, no_refill);
   pt_psb(&shared.encoder, 0);
   pt_branch(&shared.encoder, 1);
   snapshot(&shared, &whole);
   uint64_t tnt = shared.encoder.tnt;

   pt_tnt_flush(&shared.encoder);
   shared.encoder.tnt = tnt;
   snapshot(&shared, &now);
   CHECK(!is_prefix(&now, &whole), "not noticed");
}

static const struct { const char *name; void (*run)(void); } tests[] = {
#define TEST(name) { #name, name }
   TEST(branches_of_every_length), TEST(targets_at_every_distance), TEST(returns_are_compressed),
   TEST(returns_to_calls_before_one_that_went_elsewhere_are_tips),
   TEST(events_turn_tracing_off_and_on), TEST(psbs_come_in_time), TEST(small_buffers_are_refilled),
   TEST(killed_anywhere_leaves_a_prefix), TEST(control_counting_branches_twice_is_noticed),
};

int main(int argc, char **argv)
{
   unsigned i;

   for (i = 0; argc == 2 && i < sizeof tests / sizeof *tests; i++) {
      if (strcmp(argv[1], "list") == 0)
         puts(tests[i].name);
      else if (strcmp(argv[1], tests[i].name) == 0)
         tests[i].run();
   }
   return failures != 0;
}
