/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See stream.h for what this guarantees. */
#include "stream.h"
#include "code_map.h"
#include "process.h"
#include "sideband.h"
#include "syslog.h"
#include "tnt_register.h"
#include "libvex_guest_amd64.h"

enum { VOID_SIZE = 1 << 16 };

#define TSC_PERIOD   (1ULL << 21)   /* ticks: under a millisecond between two TSCs of a running thread */
#define RETRY_PERIOD (1ULL << 25)   /* ticks between two attempts to store again */

struct stream {
   struct ptsoft_thread *thread;    /* its page; private memory when there is no room for one */
   struct window page, buffer;
   HChar trace[OUTPUT_NAME];        /* file that the buffer is written to */
   struct syslog syslog;
   UInt epoch;                      /* of the current slice */
   ULong lost_reported;             /* bytes lost that a record tells of */
   ULong retry;                     /* TSC at which to try to store again */
};

static struct stream_options options;
static struct stream **streams;     /* by ThreadId */
static UInt numbered;               /* streams of this process so far */
static Int *creators;               /* by ThreadId: tid of the thread that created it, 0 unknown */
static struct stream *calling;      /* the stream whose system call is being made by the running thread */

/* Where packets go that cannot be stored: nobody reads it. */
static UChar nowhere[VOID_SIZE];

#define KEEP_ORDER() __asm__ volatile("" ::: "memory")

static struct ptsoft_thread *thread_of(struct pt_encoder *encoder)
{
   return (struct ptsoft_thread *)((UChar *)encoder - offsetof(struct ptsoft_thread, encoder));
}

/* Append the buffer up to offset thread->end to the file. */
static Bool store(struct stream *stream)
{
   const struct ptsoft_thread *thread = stream->thread;
   ULong from = thread->encoder.window;

   if (stream->buffer.base == NULL)
      return False;
   return thread->end == from || output_append(stream->trace, from, stream->buffer.base, thread->end - from);
}

static void write_nowhere(struct stream *stream)
{
   struct ptsoft_thread *thread = stream->thread;

   thread->hold = PTSOFT_VOID;
   KEEP_ORDER();
   pt_rebase(&thread->encoder, nowhere, VOID_SIZE, thread->encoder.window);
   stream->retry = time_stamp() + RETRY_PERIOD;
}

/* Everything up to thread->end is in the file: use the buffer again. */
static void write_on(struct stream *stream)
{
   struct ptsoft_thread *thread = stream->thread;

   KEEP_ORDER();
   thread->hold = PTSOFT_STORED;
   KEEP_ORDER();
   pt_rebase(&thread->encoder, stream->buffer.base, PTSOFT_BUFFER, thread->end);
   KEEP_ORDER();
   thread->hold = PTSOFT_WRITING;
}

/* The buffer is full. What was written nowhere is lost; the rest goes into the file. */
static void refill(struct pt_encoder *encoder)
{
   struct ptsoft_thread *thread = thread_of(encoder);
   struct stream *stream = thread->stream_object;

   if (thread->hold == PTSOFT_VOID) {
      thread->lost += (ULong)(encoder->pos - encoder->start);
      pt_rebase(encoder, nowhere, VOID_SIZE, encoder->window);
      return;
   }
   thread->end = pt_offset(encoder);
   if (store(stream))
      write_on(stream);
   else
      write_nowhere(stream);
}

void stream_init(struct stream_options chosen)
{
   options = chosen;
   streams = VG_(calloc)("ptsoft.streams", VG_N_THREADS, sizeof *streams);
   creators = VG_(calloc)("ptsoft.creators", VG_N_THREADS, sizeof *creators);
}

struct ptsoft_thread *stream_thread(ThreadId tid)
{
   return streams[tid] == NULL ? NULL : streams[tid]->thread;
}

UInt stream_slot(void)
{
   return (sizeof(VexGuestAMD64State) + 15) & ~15u; /* first word of the first shadow state */
}

static void begin_slice(struct stream *stream)
{
   struct ptsoft_thread *thread = stream->thread;

   stream->epoch = code_map_epoch();
   sideband_put(PTSOFT_SLICE, (struct sideband_values){ {
      thread->stream, pt_offset(&thread->encoder), stream->epoch } }, NULL);
   pt_psb(&thread->encoder, 0);
}

static void open_page(struct stream *stream, UInt number)
{
   stream->thread = process_thread_page(&stream->page, number);
   if (stream->thread == NULL) {
      process_state()->streams_lost++;
      stream->thread = VG_(calloc)("ptsoft.thread", 1, sizeof *stream->thread);
   }
}

static struct stream *begin(ThreadId tid)
{
   struct stream *stream = VG_(calloc)("ptsoft.stream", 1, sizeof *stream);
   UInt number = numbered++;
   struct ptsoft_thread *thread;

   open_page(stream, number);
   thread = stream->thread;
   thread->stream = number;
   thread->tid = (UInt)VG_(gettid)();
   thread->creator = (UInt)creators[tid];
   thread->tsc_begin = time_stamp();
   thread->logging = options.log;
   thread->stream_object = stream;
   thread->state = PTSOFT_LIVE;
   syslog_init(&stream->syslog, number);
   process_file_name(stream->trace, (Int)number, "pt");
   pt_encoder_init(&thread->encoder, nowhere, VOID_SIZE, options.psb_period, options.compress, refill);
   if (stream->page.base != NULL && process_buffer(&stream->buffer, &thread->buffer))
      write_on(stream);
   else
      write_nowhere(stream);
   KEEP_ORDER();
   thread->magic = PTSOFT_THREAD_MAGIC;
   sideband_hold();
   sideband_put(PTSOFT_THREAD, (struct sideband_values){ { number, thread->tid, thread->creator } }, NULL);
   begin_slice(stream);
   sideband_release();
   process_state()->streams++; /* not before: one that is killed on the way here has not run, and nothing is missing */
   return stream;
}

/* The instruction at `ip` was logged but does not complete before the interruption: it will be logged again. */
static void unlog(struct ptsoft_thread *thread, ULong ip, Bool fault)
{
   if (thread->log_ip != 0 && thread->log_ip == ip && (fault || !thread->log_branch)) {
      thread->instructions = thread->log_instructions;
      thread->hash = thread->log_hash;
   }
   thread->log_ip = 0;
}

static void interrupt(struct ptsoft_thread *thread, ULong ip, Bool fault)
{
   unlog(thread, ip, fault);
   pt_disable_at(&thread->encoder, ip);
}

static void report_lost(struct stream *stream)
{
   struct ptsoft_thread *thread = stream->thread;

   sideband_put(PTSOFT_LOST, (struct sideband_values){ {
      thread->stream, thread->end, thread->lost - stream->lost_reported } }, NULL);
   stream->lost_reported = thread->lost;
}

/* Packets went nowhere: try to store again, from a PSB on. */
static void recover(struct stream *stream)
{
   struct ptsoft_thread *thread = stream->thread;
   struct pt_encoder *encoder = &thread->encoder;
   UChar rest[PT_TNT_MAX];

   if (time_stamp() < stream->retry || !store(stream)) {
      if (time_stamp() >= stream->retry)
         stream->retry = time_stamp() + RETRY_PERIOD;
      return;
   }
   thread->lost += (ULong)(encoder->pos - encoder->start) + pt_tnt_encode(encoder->tnt, rest);
   encoder->tnt = PT_TNT_EMPTY;
   encoder->enabled = 0;
   write_on(stream);
   report_lost(stream);
   begin_slice(stream);
}

void stream_enter(ThreadId tid)
{
   struct stream *stream = streams[tid];
   struct pt_encoder *encoder;
   UWord pointer;
   Addr ip = VG_(get_IP)(tid);

   if (stream == NULL)
      stream = streams[tid] = begin(tid);
   encoder = &stream->thread->encoder;
   pointer = (UWord)encoder;
   VG_(set_shadow_regs_area)(tid, 1, 0, sizeof pointer, (const UChar *)&pointer);
   syslog_restarted(&stream->syslog);
   if (stream->thread->hold == PTSOFT_VOID)
      recover(stream);
   if (stream->epoch != code_map_epoch()) {
      interrupt(stream->thread, ip, False);
      begin_slice(stream);
   } else if (encoder->enabled && pt_psb_due(encoder)) {
      pt_psb(encoder, ip);
   } else if (encoder->enabled && time_stamp() - encoder->last_tsc > TSC_PERIOD) {
      pt_time(encoder);
   }
   pt_enable(encoder, ip);
   tnt_register_use(encoder);
}

void stream_created(ThreadId child)
{
   creators[child] = child == 1 ? 0 : VG_(gettid)(); /* the first one is not made by itself */
}

void stream_interrupt(ThreadId tid, Bool fault)
{
   if (streams[tid] != NULL)
      interrupt(streams[tid]->thread, VG_(get_IP)(tid), fault);
}

void stream_syscall(ThreadId tid, UInt number, const UWord args[6])
{
   struct stream *stream = streams[tid];

   if (stream == NULL)
      return;
   syslog_enter(&stream->syslog, VG_(get_IP)(tid) - 2, number, args, pt_offset(&stream->thread->encoder));
   KEEP_ORDER();
   stream->thread->syscalls = stream->syslog.calls;
   stream->thread->syscalls_lost = stream->syslog.lost;
   calling = stream;
}

void stream_syscall_done(ThreadId tid, SysRes result)
{
   calling = NULL;
   if (streams[tid] != NULL)
      syslog_exit(&streams[tid]->syslog, result);
}

void stream_syscall_asked(const void *guest_state, UWord number, const UWord args[6])
{
   struct stream *stream = calling;

   if (guest_state != NULL) { /* without the big lock: `calling` may be another thread's */
      struct pt_encoder *encoder = *(struct pt_encoder *const *)((const UChar *)guest_state + stream_slot());

      stream = thread_of(encoder)->stream_object;
   }
   if (stream != NULL)
      syslog_asked(&stream->syslog, number, args);
}

/* Nothing is pending: the stream was interrupted. */
static void end(struct stream *stream)
{
   struct ptsoft_thread *thread = stream->thread;
   struct pt_encoder *encoder = &thread->encoder;

   if (thread->hold == PTSOFT_VOID)
      thread->lost += (ULong)(encoder->pos - encoder->start);
   else
      thread->end = pt_offset(encoder);
   if (!store(stream)) {
      thread->lost += thread->end - encoder->window;
      thread->end = encoder->window;
   }
   if (thread->lost != stream->lost_reported)
      report_lost(stream);
   KEEP_ORDER();
   thread->hold = PTSOFT_STORED;
   thread->tsc_end = time_stamp();
   thread->state = PTSOFT_ENDED;
   sideband_put(PTSOFT_THREAD_EXIT, (struct sideband_values){ { thread->stream, thread->tid, thread->end } }, NULL);
   syslog_deinit(&stream->syslog);
   if (stream->buffer.base != NULL)
      process_buffer_free(&stream->buffer, thread->buffer);
   if (stream->page.base != NULL)
      window_forget(&stream->page);
   else
      VG_(free)(thread);
   if (calling == stream)
      calling = NULL;
   VG_(free)(stream);
}

void stream_end(ThreadId tid)
{
   struct stream *stream = streams[tid];

   if (stream == NULL)
      return;
   interrupt(stream->thread, VG_(get_IP)(tid), False);
   end(stream);
   streams[tid] = NULL;
}

void stream_end_all(void)
{
   UInt tid;

   for (tid = 0; tid < VG_N_THREADS; tid++)
      stream_end(tid);
}

void stream_forked(void)
{
   UInt tid;

   calling = NULL;
   numbered = 0;
   for (tid = 0; tid < VG_N_THREADS; tid++) {
      struct stream *stream = streams[tid];

      if (stream == NULL)
         continue;
      syslog_forget(&stream->syslog);
      window_forget(&stream->buffer);
      if (stream->page.base != NULL)
         window_forget(&stream->page);
      else
         VG_(free)(stream->thread);
      VG_(free)(stream);
      streams[tid] = NULL;
      creators[tid] = 0;
   }
}

void stream_log(struct pt_encoder *encoder, ULong ip, ULong branch)
{
   struct ptsoft_thread *thread = thread_of(encoder);

   if (ip == thread->log_ip && !branch) /* a string instruction going on */
      return;
   thread->log_instructions = thread->instructions;
   thread->log_hash = thread->hash;
   thread->log_ip = ip;
   thread->log_branch = branch;
   thread->instructions++;
   thread->hash = (thread->hash ^ ip) * 0x9E3779B97F4A7C15ULL;
   thread->hash ^= thread->hash >> 29;
}

void stream_far(struct pt_encoder *encoder)
{
   pt_disable(encoder);
   thread_of(encoder)->log_ip = 0;
}
