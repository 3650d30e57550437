/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Valgrind's tool headers, and the few functions of its core that the tool headers leave out. Valgrind keeps no
 * stable interface here: the build accepts 3.19 only, and the linker finds what is missing.
 */
#ifndef PTSOFT_VG_CORE_H
#define PTSOFT_VG_CORE_H

#include "pub_tool_basics.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"
#include "pub_tool_aspacemgr.h"
#include "pub_tool_clientstate.h"
#include "pub_tool_guest.h"
#include "pub_tool_libcassert.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_machine.h"
#include "pub_tool_mallocfree.h"
#include "pub_tool_options.h"
#include "pub_tool_threadstate.h"
#include "pub_tool_tooliface.h"

/* Constants of the kernel's that Valgrind's copies of its headers leave out. */
enum {
   PT_O_DIRECTORY = 0200000, PT_O_NOFOLLOW = 0400000, PT_O_CLOEXEC = 02000000, PT_O_NONBLOCK = 04000,
   PT_EOPNOTSUPP = 95, PT_RLIMIT_FSIZE = 1, PT_RLIMIT_AS = 9,
};

enum { PT_THREADS = 1024 }; /* of a process at once: soft.py asks for as many */

/* m_libcfile: move a descriptor above those the program may use, close-on-exec; the limit of those it may use. */
extern Int VG_(safe_fd)(Int oldfd);
extern Int VG_(fd_hard_limit);

/* m_syscall */
extern SysRes VG_(mk_SysRes_Error)(UWord error);
extern SysRes VG_(mk_SysRes_Success)(UWord value);
extern SysRes VG_(do_syscall)(UWord number, RegWord a1, RegWord a2, RegWord a3, RegWord a4, RegWord a5,
                              RegWord a6, RegWord a7, RegWord a8);

/* A system call; an error is its code as a negative number. */
static inline Int vg_call(UWord number, UWord a1, UWord a2, UWord a3, UWord a4)
{
   SysRes result = VG_(do_syscall)(number, a1, a2, a3, a4, 0, 0, 0, 0);

   return sr_isError(result) ? -(Int)sr_Err(result) : (Int)sr_Res(result);
}

/* m_syswrap's SyscallArgs and SyscallStatus of 3.19. */
struct syscall_args { Word number; UWord arg1, arg2, arg3, arg4, arg5, arg6, arg7, arg8; };
struct syscall_status { Int what; SysRes result; };
enum { SS_COMPLETE = 1, SF_MAY_BLOCK = 1 << 1, SF_POLL_AFTER = 1 << 3, SF_YIELD_AFTER = 1 << 4 };

/* Valgrind's handler of a call answers it, and the kernel is not asked. */
static inline void vg_answer(struct syscall_status *status, SysRes result)
{
   status->what = SS_COMPLETE;
   status->result = result;
}

static inline void vg_refuse(struct syscall_status *status, UWord error)
{
   vg_answer(status, VG_(mk_SysRes_Error)(error));
}

/* m_signals: of a thread's signals, as the program sees them */
extern SysRes VG_(do_sys_sigprocmask)(ThreadId tid, Int how, vki_sigset_t *set, vki_sigset_t *before);

/* m_transtab */
extern void VG_(discard_translations)(Addr start, ULong size, const HChar *who);

/* m_aspacemgr */
extern SysRes VG_(am_shared_mmap_file_float_valgrind)(SizeT length, UInt prot, Int fd, Off64T offset);
extern SysRes VG_(am_do_mmap_NO_NOTIFY)(Addr start, SizeT length, UInt prot, UInt flags, Int fd, Off64T offset);

/* m_clientstate: the client's executable, open */
extern Int VG_(cl_exec_fd);

/* m_libcprint: where messages go (3.19: descriptor, kind, name) */
typedef enum { VgLogTo_Fd, VgLogTo_File, VgLogTo_Socket } VgLogTo;
typedef struct { Int fd; VgLogTo type; HChar *fsname_expanded; } OutputSink;
extern OutputSink VG_(log_output_sink);

/* Stand in front of Valgrind's handler of a system call, before the call: its name goes into build_engine.py, too. */
#define VG_BEFORE(name)                                                                                            \
   extern void __real_vgSysWrap_##name##_before(ThreadId tid, void *layout, struct syscall_args *args,             \
                                                struct syscall_status *status, UWord *flags);                      \
   extern void __wrap_vgSysWrap_##name##_before(ThreadId tid, void *layout, struct syscall_args *args,             \
                                                struct syscall_status *status, UWord *flags);                      \
   void __wrap_vgSysWrap_##name##_before(ThreadId tid, void *layout, struct syscall_args *args,                    \
                                         struct syscall_status *status, UWord *flags)

#endif
