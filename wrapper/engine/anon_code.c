/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See anon_code.h. Runs under the big lock; memory is Valgrind's. */
#include "anon_code.h"
#include "code_map.h"
#include "process.h"
#include "sideband.h"
#include "pub_tool_hashtable.h"

enum { PAGE = 4096 };

/* What is stored of one page: its bytes, and which of them count. */
struct page {
   struct page *next;      /* VgHashTable's */
   UWord number;           /* its key: address / PAGE */
   UChar bytes[PAGE];
   UChar stored[PAGE / 8];
};

static VgHashTable *pages;
static Addr lowest = ~(Addr)0, highest; /* no page is outside */

static Bool is_stored(const struct page *page, UInt at)
{
   return page->stored[at / 8] >> (at % 8) & 1;
}

static struct page *page_of(Addr addr)
{
   UWord number = addr / PAGE;
   struct page *page;

   if (pages == NULL)
      pages = VG_(HT_construct)("ptsoft.pages");
   page = VG_(HT_lookup)(pages, number);
   if (page == NULL) {
      page = VG_(calloc)("ptsoft.page", 1, sizeof *page);
      page->number = number;
      VG_(HT_add_node)(pages, page);
      if (addr < lowest)
         lowest = number * PAGE;
      if (number * PAGE + PAGE > highest)
         highest = number * PAGE + PAGE;
   }
   return page;
}

/* Store bytes and say where they are. Bytes that find no room are counted, and stored the next time they change. */
static void store(Addr addr, const UChar *bytes, SizeT size)
{
   struct ptsoft_process *process = process_state();
   ULong offset = process->code;
   HChar name[OUTPUT_NAME];

   process_file_name(name, -1, "code");
   if (!output_append(name, offset, bytes, size)) {
      process->code_lost += size;
      return;
   }
   process->code += size;
   sideband_put(PTSOFT_CODE, (struct sideband_values){ { addr, size, offset, code_map_epoch() } }, NULL);
}

static Bool changed(Addr addr, const UChar *bytes, SizeT size)
{
   SizeT i;

   for (i = 0; i < size; i++) {
      const struct page *page = page_of(addr + i);

      if (is_stored(page, (addr + i) % PAGE) && page->bytes[(addr + i) % PAGE] != bytes[i])
         return True;
   }
   return False;
}

/* Remember the bytes; with `all`, store them all, else the runs not stored before. */
static void keep(Addr addr, const UChar *bytes, SizeT size, Bool all)
{
   SizeT i, run = 0; /* length of the run of bytes to store that ends before i */

   for (i = 0; i < size; i++) {
      struct page *page = page_of(addr + i);
      UInt at = (addr + i) % PAGE;
      Bool wanted = all || !is_stored(page, at);

      page->bytes[at] = bytes[i];
      page->stored[at / 8] |= (UChar)(1u << (at % 8));
      if (wanted) {
         run++;
      } else if (run > 0) {
         store(addr + i - run, bytes + i - run, run);
         run = 0;
      }
   }
   if (run > 0)
      store(addr + size - run, bytes + size - run, run);
}

void anon_code_translated(Addr addr, const UChar *bytes, SizeT size)
{
   Bool all = changed(addr, bytes, size);

   if (all)
      (void)code_map_next_epoch();
   sideband_hold();
   keep(addr, bytes, size, all);
   sideband_release();
}

static Bool drop(struct page *page)
{
   VG_(free)(VG_(HT_remove)(pages, page->number));
   return True;
}

Bool anon_code_gone(Addr addr, SizeT size)
{
   Addr at = addr < lowest ? lowest : addr, end = addr + size > highest ? highest : addr + size;
   Bool found = False;

   for (at &= ~(Addr)(PAGE - 1); pages != NULL && at < end; at += PAGE) {
      struct page *page = VG_(HT_lookup)(pages, at / PAGE);

      if (page != NULL)
         found = drop(page);
   }
   return found;
}

static void store_page(const struct page *page)
{
   UInt at, run = 0;

   for (at = 0; at <= PAGE; at++) {
      if (at < PAGE && is_stored(page, at)) {
         run++;
      } else if (run > 0) {
         store(page->number * PAGE + at - run, page->bytes + at - run, run);
         run = 0;
      }
   }
}

void anon_code_forked(void)
{
   struct page *page;

   if (pages == NULL)
      return;
   VG_(HT_ResetIter)(pages);
   while ((page = VG_(HT_Next)(pages)) != NULL)
      store_page(page);
}
