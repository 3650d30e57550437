/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The log of one thread's system calls: the n-th record belongs to the n-th system-call instruction in the
 * thread's packets, whatever became of the call. A call that a signal interrupts and that is made again has two
 * records, as it has two executions of its instruction.
 */
#ifndef PTSOFT_SYSLOG_H
#define PTSOFT_SYSLOG_H

#include "format.h"
#include "output.h"

struct syslog {
   struct window window;
   ULong calls;                   /* calls made, lost records included */
   ULong lost;
   struct ptsoft_syscall *open;   /* the call being made; NULL none, or it had no room */
};

/* Begin a log; `stream` names its file. Nothing is written yet. */
void syslog_init(struct syslog *log, UInt stream);

/* A call begins. `stream` is the offset in the packets behind its instruction. */
void syslog_enter(struct syslog *log, ULong ip, UInt number, const UWord args[6], ULong stream);

/* The kernel is asked for something: it answers the open call if it is the same. */
void syslog_asked(struct syslog *log, UWord number, const UWord args[6]);

/* The open call returned. */
void syslog_exit(struct syslog *log, SysRes result);

/* The thread runs on without the open call having returned: the call will be made again. */
void syslog_restarted(struct syslog *log);

/* The file keeps the records and nothing else. */
void syslog_deinit(struct syslog *log);

/* Let go of a log that is another process's. */
void syslog_forget(struct syslog *log);

#endif
