/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See code_end.h. */
#include "code_end.h"

enum { PAGE = 4096, NOP = 0x90 /* what it is the rest of can be decoded, nearly always */ };

SizeT code_end_readable(Addr addr)
{
   Addr end = (addr & ~(Addr)(PAGE - 1)) + PAGE;

   if (!VG_(am_is_valid_for_client)(addr, 1, VKI_PROT_READ)) /* Valgrind's own, in place of the program's */
      return LONGEST_BLOCK;
   while (end < addr + LONGEST_BLOCK && VG_(am_is_valid_for_client)(end, PAGE, VKI_PROT_READ))
      end += PAGE;
   return end < addr + LONGEST_BLOCK ? end - addr : LONGEST_BLOCK;
}

void code_end_copy(UChar *bytes, Addr addr, SizeT readable)
{
   VG_(memcpy)(bytes, (const void *)addr, readable);
   VG_(memset)(bytes + readable, NOP, LONGEST_BLOCK - readable);
}
