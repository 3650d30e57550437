/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See sideband.h. Runs under the big lock. */
#include "sideband.h"
#include "process.h"

enum { TEXT_MAX = 4096, HELD_MAX = 1 << 16 };

static UChar held[HELD_MAX];
static SizeT held_size;
static UInt held_records;
static Bool holding;

static void store(void)
{
   struct ptsoft_process *process = process_state();
   HChar name[OUTPUT_NAME];

   if (held_size == 0)
      return;
   process_file_name(name, -1, "rec");
   if (output_append(name, process->records, held, held_size))
      process->records += held_size;
   else
      process->records_lost += held_records;
   held_size = 0;
   held_records = 0;
}

void sideband_put(enum ptsoft_record_kind kind, struct sideband_values values, const HChar *text)
{
   SizeT length = text ? VG_(strlen)(text) : 0;
   struct ptsoft_record record;

   if (length > TEXT_MAX)
      length = TEXT_MAX;
   record.size = (UInt)(sizeof record + ((length + 7) & ~(SizeT)7));
   record.kind = (UShort)kind;
   record.text = (UShort)length;
   record.tsc = time_stamp();
   VG_(memcpy)(record.value, values.value, sizeof record.value);
   if (held_size + record.size > HELD_MAX)
      store();
   VG_(memset)(held + held_size, 0, record.size);
   VG_(memcpy)(held + held_size, &record, sizeof record);
   VG_(memcpy)(held + held_size + sizeof record, text ? text : "", length);
   held_size += record.size;
   held_records++;
   if (!holding)
      store();
}

void sideband_hold(void)
{
   holding = True;
}

void sideband_release(void)
{
   holding = False;
   store();
}
