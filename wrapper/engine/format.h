/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The files that the engine leaves in the spool folder. ptweave/wrapper/spool_format.py reads them; a test holds
 * the two equal. Everything is little-endian. P is `<pid>.<n>`, n counting the images (exec) and lives of that pid.
 *
 *   P.state      page 0: struct ptsoft_process; page 1 + k: struct ptsoft_thread of stream k
 *   P.rec        struct ptsoft_record and text, back to back: the first `process.records` bytes are whole records
 *   P.code       bytes of code that no file holds: the first `process.code` bytes are whole
 *   P.<k>.pt     packets of stream k, as far as they left its buffer
 *   P.buf        buffers of streams, PTSOFT_BUFFER bytes each: struct ptsoft_thread says which is whose
 *   P.<k>.sys    system calls of stream k: struct ptsoft_syscall (the same as ptweave/data/syslog.py describes),
 *                one for each call in order; a record that is all zero had no room
 *   F<dev>.<inode>.<mtime>.<size>  copy of an executed file that is not likely to stay where it was
 *   engine.log   what the engine itself had to say
 *
 * State pages, buffers and .sys are shared mappings: what a process stored there outlives it, however it dies.
 * Packets go through a small buffer that is used again and again, and from there into their file with a write: a
 * mapping of the file itself would take a page fault, at several microseconds, for every 4 kB.
 */
#ifndef PTSOFT_FORMAT_H
#define PTSOFT_FORMAT_H

#include <stdint.h>
#include "pt_packet.h"

#define PTSOFT_PROCESS_MAGIC 0x31504f5350545750ULL /* "PWTPSOP1" */
#define PTSOFT_THREAD_MAGIC  0x31544f5350545750ULL /* "PWTPSOT1" */

enum {
   PTSOFT_PAGE = 4096,
   PTSOFT_EXE_MAX = 1024,
   PTSOFT_BUFFER = 1 << 18,
};

/* PTSOFT_WENT_ON: a thread cloned it and left, and it goes on in its place, on its stack (libtthread's threads). */
enum ptsoft_began { PTSOFT_STARTED = 1, PTSOFT_FORKED = 2, PTSOFT_WENT_ON = 3 };

enum ptsoft_ended {
   PTSOFT_RUNNING = 0,
   PTSOFT_EXECING = 1,
   PTSOFT_FINISHED = 2,
   PTSOFT_UNRECORDED = 3, /* as EXECING: and the program began, or may have, without a file of its own */
};

struct ptsoft_process {
   uint64_t magic;
   uint32_t pid, tid;            /* tid of the task that began it */
   uint32_t parent_pid, parent_tid; /* parent_tid: who forked or cloned it; 0 unknown */
   uint32_t began, ended;        /* enum ptsoft_began, ptsoft_ended */
   uint64_t tsc_begin, tsc_end;  /* tsc_end: 0 while running */
   uint64_t records, code;       /* bytes that count in P.rec and P.code */
   uint64_t records_lost;        /* records that could not be stored */
   uint64_t code_lost;           /* bytes of P.code that could not be stored */
   uint64_t streams;             /* streams begun */
   uint64_t streams_lost;        /* threads that have no state page */
   uint64_t children_lost;       /* fork children that could not open files of their own */
   char exe[PTSOFT_EXE_MAX];     /* path of the executable, NUL-terminated */
};

/* Where a stream's packets are. Pending branches are those in encoder.tnt. */
enum ptsoft_hold {
   /* .pt up to encoder.window, then the buffer from encoder.start to encoder.pos, then the pending branches if
      encoder.tnt_pos == encoder.pos */
   PTSOFT_WRITING = 0,
   /* .pt up to `end`, then the pending branches */
   PTSOFT_STORED = 1,
   /* .pt up to encoder.window, then the buffer up to offset `end` of the stream; what came since is lost */
   PTSOFT_VOID = 2,
};

enum ptsoft_thread_state { PTSOFT_LIVE = 1, PTSOFT_ENDED = 2 };

struct ptsoft_thread {
   uint64_t magic;
   uint32_t stream, tid, creator, state; /* enum ptsoft_thread_state */
   uint64_t tsc_begin, tsc_end;
   uint64_t end;                 /* see enum ptsoft_hold */
   uint64_t lost;                /* bytes of packets not stored */
   uint64_t syscalls;            /* records that count in .sys */
   uint64_t syscalls_lost;
   uint64_t instructions;        /* --pt-log=yes: instructions executed, and a hash of their addresses in order */
   uint64_t hash;
   uint32_t hold;                /* enum ptsoft_hold */
   uint32_t logging;
   uint64_t buffer;              /* number of its buffer in P.buf */
   uint64_t reserved[3];
   struct pt_encoder encoder;    /* at offset 128 */
   uint64_t log_ip;              /* the engine's own from here on: last instruction logged, 0 none */
   uint64_t log_branch;          /* it was a branch */
   uint64_t log_instructions, log_hash; /* the log before it */
   void *stream_object;
   uint64_t watch_hit;           /* what was touched of what is watched, not yet told: as in watch_format.h */
   uint64_t watch_ip;            /* by that instruction */
};

_Static_assert(__builtin_offsetof(struct ptsoft_thread, encoder) == 128, "spool_format.py knows this offset");
_Static_assert(sizeof(struct ptsoft_thread) <= PTSOFT_PAGE, "a thread has one page");
_Static_assert(sizeof(struct ptsoft_process) <= PTSOFT_PAGE, "a process has one page");

enum ptsoft_record_kind {
   PTSOFT_MAP = 1,         /* addr, size, offset, dev, inode, mtime (ns), file size, epoch; text: path */
   PTSOFT_CODE = 2,        /* addr, size, offset in P.code, epoch */
   PTSOFT_UNMAP = 3,       /* addr, size, epoch that begins */
   PTSOFT_SLICE = 4,       /* stream, offset, epoch */
   PTSOFT_THREAD = 5,      /* stream, tid, creator's tid */
   PTSOFT_THREAD_EXIT = 6, /* stream, tid, offset at which its trace ends */
   PTSOFT_LOST = 7,        /* stream, offset, bytes */
   PTSOFT_COMM = 8,        /* tid; text: name */
   PTSOFT_UNTRACED = 9,    /* tid; text: path of a program that runs without the engine from here on */
};

enum { PTSOFT_VALUES = 8 };

struct ptsoft_record {
   uint32_t size;          /* bytes of record and padded text, a multiple of 8 */
   uint16_t kind;          /* enum ptsoft_record_kind */
   uint16_t text;          /* bytes of text behind it, without padding */
   uint64_t tsc;
   uint64_t value[PTSOFT_VALUES];
};

_Static_assert(sizeof(struct ptsoft_record) == 80, "spool_format.py knows this size");

/* Bits of ptsoft_syscall.flags. */
enum {
   PTSOFT_SYS_ANSWERED = 1,  /* the engine answered it without asking the kernel the same thing */
   PTSOFT_SYS_RESTARTED = 2, /* a signal interrupted it and its instruction is executed again: see a later record */
};

struct ptsoft_syscall {
   uint64_t tsc_enter, tsc_exit;
   int64_t result;
   uint64_t ip;
   uint32_t number, flags;
   uint64_t args[6];
   uint64_t stream;
};

_Static_assert(sizeof(struct ptsoft_syscall) == 96, "ptweave/data/syslog.py knows this size");

#endif
