/* SPDX-License-Identifier: MIT */
/*
 * Decodes one thread's trace with libipt's instruction decoder and prints what ran:
 *
 *     count N hash H errors E syscalls S ip N
 *
 * one line for each program image that the thread ran (an exec begins another).
 *
 * usage: check_trace [-b] [-d DUMP] [-x IP] TRACE PLAN
 *     -b       use the block decoder: its count must be the same (the hash is 0)
 *     -d DUMP  write every instruction's address, a line each
 *     -x IP    the instruction (hex address) whose executions `ip N` counts
 *
 * PLAN has a line for each image, each slice of the trace in it, and each piece of code in that:
 *     image
 *     slice BEGIN END
 *     code ADDR SIZE OFFSET FILE
 *
 * Knows nothing of ptweave's own decoder: it is what that and the engine are checked against.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <intel-pt.h>

struct check {
   uint8_t *trace;
   uint64_t size;
   struct pt_image_section_cache *cache;
   FILE *dump;
   int blocks;
   uint64_t wanted;
   uint64_t count, hash, errors, syscalls, hits;
};

static void die(const char *what, const char *where)
{
   fprintf(stderr, "check_trace: %s: %s\n", where, what);
   exit(2);
}

static void note(struct check *check, uint64_t ip)
{
   check->count++;
   check->hash = (check->hash ^ ip) * 0x9E3779B97F4A7C15ull;
   check->hash ^= check->hash >> 29;
   check->hits += ip == check->wanted;
   if (check->dump)
      fprintf(check->dump, "%" PRIx64 "\n", ip);
}

static int is_syscall(const struct pt_insn *insn)
{
   return insn->iclass == ptic_far_call && insn->size == 2 && insn->raw[0] == 0x0f && insn->raw[1] == 0x05;
}

static void report(struct check *check, int status, uint64_t offset, uint64_t ip)
{
   check->errors++;
   fprintf(stderr, "error %s at offset 0x%" PRIx64 " ip 0x%" PRIx64 " after %" PRIu64 " instructions\n",
           pt_errstr(pt_errcode(status)), offset, ip, check->count);
}

static int drain_events(struct pt_insn_decoder *decoder, int status)
{
   while (status >= 0 && (status & pts_event_pending)) {
      struct pt_event event;

      status = pt_insn_event(decoder, &event, sizeof event);
   }
   return status;
}

static void decode_instructions(struct check *check, const struct pt_config *config, struct pt_image *image)
{
   struct pt_insn_decoder *decoder = pt_insn_alloc_decoder(config);
   struct pt_insn insn = { 0 };
   int status;

   if (!decoder || pt_insn_set_image(decoder, image) < 0)
      die("no decoder", "libipt");
   while ((status = pt_insn_sync_forward(decoder)) >= 0) {
      for (;;) {
         status = drain_events(decoder, status);
         if (status < 0 || (status & pts_eos))
            break;
         status = pt_insn_next(decoder, &insn, sizeof insn);
         if (status >= 0 || insn.iclass != ptic_error) {
            if (insn.iclass != ptic_error) {
               note(check, insn.ip);
               check->syscalls += is_syscall(&insn);
            }
         }
         if (status < 0)
            break;
      }
      if (status >= 0 || status == -pte_eos)
         break;
      uint64_t offset = 0;

      pt_insn_get_offset(decoder, &offset);
      report(check, status, (uint64_t)(config->begin - check->trace) + offset, insn.ip);
   }
   pt_insn_free_decoder(decoder);
}

static void decode_blocks(struct check *check, const struct pt_config *config, struct pt_image *image)
{
   struct pt_block_decoder *decoder = pt_blk_alloc_decoder(config);
   struct pt_block block = { 0 };
   int status;

   if (!decoder || pt_blk_set_image(decoder, image) < 0)
      die("no decoder", "libipt");
   while ((status = pt_blk_sync_forward(decoder)) >= 0) {
      for (;;) {
         while (status >= 0 && (status & pts_event_pending)) {
            struct pt_event event;

            status = pt_blk_event(decoder, &event, sizeof event);
         }
         if (status < 0 || (status & pts_eos))
            break;
         memset(&block, 0, sizeof block);
         status = pt_blk_next(decoder, &block, sizeof block);
         check->count += block.ninsn;
         if (status < 0)
            break;
      }
      if (status >= 0 || status == -pte_eos)
         break;
      uint64_t offset = 0;

      pt_blk_get_offset(decoder, &offset);
      report(check, status, (uint64_t)(config->begin - check->trace) + offset, block.end_ip);
   }
   pt_blk_free_decoder(decoder);
}

static void decode(struct check *check, uint64_t begin, uint64_t end, struct pt_image *image)
{
   struct pt_config config;

   pt_config_init(&config);
   config.begin = check->trace + begin;
   config.end = check->trace + end;
   if (begin >= end)
      return;
   if (check->blocks)
      decode_blocks(check, &config, image);
   else
      decode_instructions(check, &config, image);
}

static void load_trace(struct check *check, const char *path)
{
   FILE *file = fopen(path, "rb");

   if (!file || fseek(file, 0, SEEK_END) < 0)
      die("cannot be read", path);
   check->size = (uint64_t)ftell(file);
   rewind(file);
   check->trace = malloc(check->size + 1);
   if (!check->trace || fread(check->trace, 1, check->size, file) != check->size)
      die("cannot be read", path);
   fclose(file);
}

static void add_code(struct check *check, struct pt_image *image, const char *line)
{
   uint64_t addr, size, offset;
   int at = 0, isid;

   if (sscanf(line, "code %" SCNx64 " %" SCNx64 " %" SCNx64 " %n", &addr, &size, &offset, &at) != 3 || !at)
      die("bad line", line);
   isid = pt_iscache_add_file(check->cache, line + at, offset, size, addr);
   if (isid < 0 || pt_image_add_cached(image, check->cache, isid, NULL) < 0)
      die("cannot be added", line);
}

static void print(struct check *check)
{
   printf("count %" PRIu64 " hash %016" PRIx64 " errors %" PRIu64 " syscalls %" PRIu64 " ip %" PRIu64 "\n",
          check->count, check->hash, check->errors, check->syscalls, check->hits);
   check->count = check->hash = check->errors = check->syscalls = check->hits = 0;
}

/* Returns the errors of all images. */
static uint64_t run(struct check *check, const char *path)
{
   uint64_t errors = 0;
   int images = 0;
   struct pt_image *image = NULL;
   uint64_t begin = 0, end = 0;
   char line[8192];
   FILE *plan = fopen(path, "r");

   if (!plan)
      die("cannot be read", path);
   while (fgets(line, sizeof line, plan)) {
      line[strcspn(line, "\n")] = '\0';
      if (image && (line[0] == 's' || line[0] == 'i')) {
         decode(check, begin, end, image);
         pt_image_free(image);
         image = NULL;
      }
      if (strcmp(line, "image") == 0) {
         errors += check->errors;
         if (images++)
            print(check);
      } else if (strncmp(line, "slice", 5) == 0) {
         image = pt_image_alloc(NULL);
         if (sscanf(line, "slice %" SCNx64 " %" SCNx64, &begin, &end) != 2 || end > check->size)
            die("bad line", line);
      } else if (image) {
         add_code(check, image, line);
      }
   }
   if (image)
      decode(check, begin, end, image);
   pt_image_free(image);
   fclose(plan);
   errors += check->errors;
   print(check);
   return errors;
}

int main(int argc, char **argv)
{
   struct check check = { .wanted = UINT64_MAX };
   uint64_t errors;
   int i;

   for (i = 1; i < argc && argv[i][0] == '-'; i++) {
      if (strcmp(argv[i], "-b") == 0)
         check.blocks = 1;
      else if (strcmp(argv[i], "-d") == 0 && i + 1 < argc)
         check.dump = fopen(argv[++i], "w");
      else if (strcmp(argv[i], "-x") == 0 && i + 1 < argc)
         check.wanted = strtoull(argv[++i], NULL, 16);
      else
         die("unknown option", argv[i]);
   }
   if (argc - i != 2)
      die("usage: check_trace [-b] [-d DUMP] [-x IP] TRACE PLAN", "arguments");
   check.cache = pt_iscache_alloc(NULL);
   pt_iscache_set_limit(check.cache, 1u << 30);
   load_trace(&check, argv[i]);
   errors = run(&check, argv[i + 1]);
   if (check.dump)
      fclose(check.dump);
   pt_iscache_free(check.cache);
   free(check.trace);
   return errors != 0;
}
