/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ptsoft: a Valgrind tool that writes, while a program runs, the packets that an Intel processor with Processor
 * Trace would have written, one stream for each thread. This file ties Valgrind's callbacks to the parts.
 */
#include "client_env.h"
#include "code_map.h"
#include "exec_file.h"
#include "hold.h"
#include "instrument.h"
#include "output.h"
#include "planted.h"
#include "process.h"
#include "queues.h"
#include "sideband.h"
#include "stop.h"
#include "stream.h"
#include "user.h"
#include "vg_limits.h"
#include "watch.h"

static const HChar *option_dir = NULL;
static Bool option_log = False, option_ret = True;
static Int option_psb_kb = 64;

static Bool first_entry = True;   /* of the program: nothing has run yet */

static Bool process_option(const HChar *option)
{
   if VG_STR_CLO(option, "--pt-dir", option_dir) {}
   else if VG_BOOL_CLO(option, "--pt-log", option_log) {}
   else if VG_BOOL_CLO(option, "--pt-ret", option_ret) {}
   else if VG_BINT_CLO(option, "--pt-psb-kb", option_psb_kb, 1, 1 << 20) {}
   else
      return False;
   return True;
}

static void print_usage(void)
{
   VG_(printf)("    --pt-dir=<folder>      spool folder, required\n"
               "    --pt-ret=no|yes        compress returns [yes]\n"
               "    --pt-psb-kb=<number>   kB of packets between two PSBs [64]\n");
}

static void print_debug_usage(void)
{
   VG_(printf)("    --pt-log=no|yes        count and hash every instruction [no]\n");
}

/* The target's stderr is the target's: from here on messages go to a file in the spool. */
static void keep_messages(void)
{
   Int fd = output_open("engine.log", VKI_O_CREAT | VKI_O_WRONLY | VKI_O_APPEND);

   if (VG_(log_output_sink).fd >= VG_(fd_hard_limit))
      VG_(close)(VG_(log_output_sink).fd);
   VG_(log_output_sink).fd = fd >= 0 ? VG_(safe_fd)(fd) : -1;
}

static void post_init(void)
{
   const HChar *inherited = VG_(getenv)(CLIENT_ENV_SPOOL); /* of an exec: never fail the program's for our sake */

   if (option_dir == NULL)
      VG_(fmsg_bad_option)("--pt-dir", "the spool folder is required\n");
   if (!output_init(option_dir, inherited != NULL ? (Int)VG_(strtoll10)(inherited, NULL) : -1) && inherited == NULL)
      VG_(fmsg_bad_option)(option_dir, "the spool folder cannot be opened\n");
   exec_file_arrived(VG_(getenv)(CLIENT_ENV_FILE));
   keep_messages();
   limits_init(VG_(getenv)(CLIENT_ENV_LIMITS));
   planted_init();
   stream_init((struct stream_options){ (ULong)option_psb_kb << 10, option_ret, option_log });
   instrument_init((struct instrument_options){ option_ret, option_log });
   process_begin(PTSOFT_STARTED, 0);
   process_arrived(VG_(getenv)(CLIENT_ENV_STATE));
}

static void start_code(ThreadId tid, ULong blocks_done)
{
   (void)blocks_done;
   if (first_entry) {
      first_entry = False;
      client_env_clean(VG_(get_SP)(tid));
      stop_init();
   }
   stream_enter(tid);
}

static void signal_delivery(ThreadId tid, Int signal, Bool on_alternate_stack)
{
   Bool fault = signal == VKI_SIGSEGV || signal == VKI_SIGBUS || signal == VKI_SIGFPE || signal == VKI_SIGILL
                || signal == VKI_SIGTRAP;

   (void)on_alternate_stack;
   if (watch_delivers(tid, fault))
      fault = False; /* the instruction before has completed */
   stream_interrupt(tid, fault);
}

static void thread_created(ThreadId tid, ThreadId child)
{
   (void)tid;
   queues_thread(child);
   stream_created(child);
}

static void thread_exits(ThreadId tid)
{
   stream_end(tid);
}

static Bool is_exec(UInt number)
{
   return number == __NR_execve || number == __NR_execveat;
}

static void note_name(UWord option, UWord name)
{
   enum { PR_SET_NAME_ = 15, NAME_MAX_ = 16 };
   HChar text[NAME_MAX_];

   if (option != PR_SET_NAME_ || !VG_(am_is_valid_for_client)(name, NAME_MAX_, VKI_PROT_READ))
      return;
   VG_(strncpy)(text, (const HChar *)name, sizeof text - 1);
   text[sizeof text - 1] = '\0';
   sideband_put(PTSOFT_COMM, (struct sideband_values){ { (ULong)VG_(gettid)() } }, text);
}

static void syscall_begins(ThreadId tid, UInt number, UWord *args, UInt count)
{
   (void)count;
   user_changing(number, args);
   stream_syscall(tid, number, args);
   if (is_exec(number))
      process_ending(PTSOFT_EXECING);
   else if (number == __NR_prctl)
      note_name(args[0], args[1]);
}

static void syscall_ends(ThreadId tid, UInt number, UWord *args, UInt count, SysRes result)
{
   (void)args;
   (void)count;
   if (number == __NR_exit || number == __NR_exit_group)
      return; /* they never return, though Valgrind ends the thread only later */
   if (is_exec(number)) { /* it failed */
      process_exec_failed();
      exec_file_forget();
   }
   stream_syscall_done(tid, result);
   user_changed(number);
}

static void before_fork(ThreadId tid)
{
   (void)tid;
   process_forking();
}

static void fork_child(ThreadId tid)
{
   (void)tid;
   stream_forked();
   process_forked();
   code_map_forked();
   hold_in_child(False);
}

static void finish(Int exit_code)
{
   (void)exit_code;
   stream_end_all();
   process_ending(PTSOFT_FINISHED);
}

/* What the packets need from VEX. Faults must find all registers right, and no jump may be followed into, or loop
   unrolled in, a block: a copy of a loop leaves a stale rip behind at a fault. */
static void control_vex(void)
{
   VG_(clo_vex_control).guest_chase = False;
   VG_(clo_vex_control).iropt_unroll_thresh = 0;
   VG_(clo_vex_control).iropt_register_updates_default = VexRegUpdAllregsAtMemAccess;
   VG_(clo_px_file_backed) = VexRegUpdAllregsAtMemAccess;
}

static void pre_init(void)
{
   VG_(details_name)("ptsoft");
   VG_(details_version)(PTSOFT_BUILD);
   VG_(details_description)("a software Intel Processor Trace");
   VG_(details_copyright_author)("The ptweave authors. GPL-2.0-or-later.");
   VG_(details_bug_reports_to)("ptweave");
   VG_(details_avg_translation_sizeB)(500);
   VG_(basic_tool_funcs)(post_init, instrument_block, finish);
   VG_(needs_command_line_options)(process_option, print_usage, print_debug_usage);
   VG_(needs_client_requests)(watch_request);
   VG_(needs_syscall_wrapper)(syscall_begins, syscall_ends);
   VG_(track_start_client_code)(start_code);
   VG_(track_new_mem_mmap)(code_map_new);
   VG_(track_die_mem_munmap)(code_map_gone);
   VG_(track_die_mem_brk)(code_map_gone);
   VG_(track_change_mem_mprotect)(code_map_protected);
   VG_(track_pre_deliver_signal)(signal_delivery);
   VG_(track_pre_thread_ll_create)(thread_created);
   VG_(track_pre_thread_ll_exit)(thread_exits);
   VG_(atfork)(before_fork, NULL, fork_child);
   control_vex();
}

VG_DETERMINE_INTERFACE_VERSION(pre_init)
