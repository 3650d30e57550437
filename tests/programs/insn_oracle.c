/* SPDX-License-Identifier: MIT */
/* libipt's classes of instructions, for each line `IP BYTES` (hex) on standard input: `CLASS SIZE`, or `bad`. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <intel-pt.h>

static uint8_t bytes[16];
static size_t size;
static uint64_t base;

static int read_memory(uint8_t *buffer, size_t wanted, const struct pt_asid *asid, uint64_t ip, void *context)
{
   size_t at = ip - base;

   (void)asid;
   (void)context;
   if (ip < base || at >= size)
      return -pte_nomap;
   if (wanted > size - at)
      wanted = size - at;
   memcpy(buffer, bytes + at, wanted);
   return (int)wanted;
}

static const char *name(enum pt_insn_class class)
{
   switch (class) {
   case ptic_call: return "call";
   case ptic_return: return "return";
   case ptic_jump: return "jump";
   case ptic_cond_jump: return "cond_jump";
   case ptic_far_call: case ptic_far_return: case ptic_far_jump: return "far";
   default: return "other";
   }
}

/* One instruction, traced: PSB+, TIP.PGE at it. */
static void classify(void)
{
   uint8_t trace[64] = { 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02,
                         0x82, 0x02, 0x23, 0x99, 0x01, 0xd1 };
   struct pt_insn_decoder *decoder;
   struct pt_image *image = pt_image_alloc(NULL);
   struct pt_config config;
   struct pt_insn insn = { 0 };
   int status;

   memcpy(trace + 21, &base, sizeof base);
   pt_config_init(&config);
   config.begin = trace;
   config.end = trace + 29;
   decoder = pt_insn_alloc_decoder(&config);
   pt_image_set_callback(image, read_memory, NULL);
   pt_insn_set_image(decoder, image);
   status = pt_insn_sync_forward(decoder);
   while (status >= 0 && (status & pts_event_pending)) {
      struct pt_event event;

      status = pt_insn_event(decoder, &event, sizeof event);
   }
   insn.iclass = ptic_error;
   if (status >= 0)
      pt_insn_next(decoder, &insn, sizeof insn);
   if (insn.iclass == ptic_error || insn.ip != base)
      printf("bad\n");
   else
      printf("%s %u\n", name(insn.iclass), insn.size);
   pt_insn_free_decoder(decoder);
   pt_image_free(image);
}

int main(void)
{
   char line[256], hex[128];

   while (fgets(line, sizeof line, stdin)) {
      if (sscanf(line, "%" SCNx64 " %127s", &base, hex) != 2)
         return 2;
      size = strlen(hex) / 2;
      if (size > sizeof bytes)
         size = sizeof bytes;
      for (size_t i = 0; i < size; i++)
         sscanf(hex + 2 * i, "%2" SCNx8, &bytes[i]);
      classify();
   }
   return 0;
}
