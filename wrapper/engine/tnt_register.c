/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See tnt_register.h. In this file alone the compiler leaves the register to us; elsewhere functions preserve it. */
#include "tnt_register.h"
#include "stream.h"

register ULong tnt_register __asm__("r13"); /* the same in vg_host.c */

Int tnt_register_slot(void)
{
   return (Int)(stream_slot() + sizeof(ULong));
}

void tnt_register_flush(struct pt_encoder *encoder)
{
   pt_tnt_flush(encoder);
   tnt_register = PT_TNT_EMPTY;
}

void tnt_register_missed(struct pt_encoder *encoder, ULong ip, ULong entry)
{
   pt_ret_missed(encoder, ip, entry);
   tnt_register = PT_TNT_EMPTY;
}
