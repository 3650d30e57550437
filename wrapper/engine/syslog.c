/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See syslog.h. The file is a shared mapping: records survive the process. */
#include "syslog.h"
#include "process.h"

enum { SMALL_WINDOW = 1 << 14, LARGE_WINDOW = 1 << 18 };

void syslog_init(struct syslog *log, UInt stream)
{
   VG_(memset)(log, 0, sizeof *log);
   process_file_name(log->window.name, (Int)stream, "sys");
}

/* Where record `index` goes; NULL when there is no room for it. */
static struct ptsoft_syscall *record_at(struct syslog *log, ULong index)
{
   ULong offset = index * sizeof(struct ptsoft_syscall);
   struct window *window = &log->window;

   if (window->base == NULL || offset + sizeof(struct ptsoft_syscall) > window->offset + window->size) {
      SizeT size = offset < 2 * SMALL_WINDOW ? SMALL_WINDOW : LARGE_WINDOW;

      if (size != window->size)
         window_forget(window);
      if (!window_map(window, offset & ~(ULong)(PTSOFT_PAGE - 1), size))
         return NULL;
   }
   return (struct ptsoft_syscall *)(window->base + (offset - window->offset));
}

void syslog_enter(struct syslog *log, ULong ip, UInt number, const UWord args[6], ULong stream)
{
   struct ptsoft_syscall *record = record_at(log, log->calls);

   log->calls++;
   log->open = record;
   if (record == NULL) {
      log->lost++;
      return;
   }
   record->tsc_enter = time_stamp();
   record->tsc_exit = 0;
   record->result = 0;
   record->ip = ip;
   record->number = number;
   record->flags = PTSOFT_SYS_ANSWERED; /* until the kernel is asked */
   VG_(memcpy)(record->args, args, sizeof record->args);
   record->stream = stream;
}

void syslog_asked(struct syslog *log, UWord number, const UWord args[6])
{
   struct ptsoft_syscall *record = log->open;

   if (record != NULL && record->number == number
       && VG_(memcmp)(record->args, args, sizeof record->args) == 0)
      record->flags &= ~(UInt)PTSOFT_SYS_ANSWERED;
}

void syslog_exit(struct syslog *log, SysRes result)
{
   struct ptsoft_syscall *record = log->open;

   log->open = NULL;
   if (record == NULL)
      return;
   record->result = sr_isError(result) ? -(Long)sr_Err(result) : (Long)sr_Res(result);
   record->tsc_exit = time_stamp();
}

void syslog_restarted(struct syslog *log)
{
   if (log->open != NULL)
      log->open->flags |= PTSOFT_SYS_RESTARTED;
   log->open = NULL;
}

void syslog_deinit(struct syslog *log)
{
   log->open = NULL;
   window_close(&log->window, log->calls * sizeof(struct ptsoft_syscall));
}

void syslog_forget(struct syslog *log)
{
   log->open = NULL;
   window_forget(&log->window);
}
