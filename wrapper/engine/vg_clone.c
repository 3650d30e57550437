/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Linked in front of Valgrind's handler of clone (-Wl,--wrap=…).
 *
 * Valgrind knows threads (CLONE_VM, FS and FILES together), fork and vfork, and gives up on anything else. Programs
 * also make processes that share descriptors or the working directory but not memory (libtthread's pseudo-threads
 * are such): those are handled here, as Valgrind handles fork. What cannot be done fails with EINVAL instead of
 * ending the program.
 *
 * Valgrind makes a fork of a vfork: the child runs beside its parent. Where memory is shared with it all the same, as
 * libtthread's is, both would run on one stack. So the kernel is asked to hold the parent until the child executes or
 * exits, as it does natively. It holds the whole process: one with other threads, which natively go on, is left to
 * Valgrind, unless all but one are libtthread's own.
 */
#include "vg_core.h"
#include "hold.h"
#include "process.h"
#include "libvex_guest_amd64.h"

extern Int VG_(sigfillset)(vki_sigset_t *set);
extern Int VG_(sigprocmask)(Int how, const vki_sigset_t *set, vki_sigset_t *old);
extern void VG_(do_atfork_pre)(ThreadId tid);
extern void VG_(do_atfork_child)(ThreadId tid);
extern void VG_(do_atfork_parent)(ThreadId tid);
extern void VG_(set_SP)(ThreadId tid, Addr sp);

extern void __real_vgSysWrap_linux_sys_clone_before(ThreadId tid, void *layout, struct syscall_args *args,
                                                    struct syscall_status *status, UWord *flags);
extern void __wrap_vgSysWrap_linux_sys_clone_before(ThreadId tid, void *layout, struct syscall_args *args,
                                                    struct syscall_status *status, UWord *flags);

extern void __real_vgSysWrap_generic_sys_fork_before(ThreadId tid, void *layout, struct syscall_args *args,
                                                     struct syscall_status *status, UWord *flags);
extern void __wrap_vgSysWrap_generic_sys_fork_before(ThreadId tid, void *layout, struct syscall_args *args,
                                                     struct syscall_status *status, UWord *flags);
extern Int VG_(count_living_threads)(void);

static Bool is_thread(UWord flags)
{
   UWord thread = VKI_CLONE_VM | VKI_CLONE_FS | VKI_CLONE_FILES;

   return (flags & (thread | VKI_CLONE_VFORK)) == thread;
}

/* fork, vfork: what Valgrind does itself */
static Bool is_fork(UWord flags)
{
   UWord shared = flags & (VKI_CLONE_VM | VKI_CLONE_FS | VKI_CLONE_FILES | VKI_CLONE_VFORK);

   return (shared == 0 && !(flags & VKI_CLONE_SETTLS)) || shared == VKI_CLONE_VFORK
          || shared == (VKI_CLONE_VFORK | VKI_CLONE_VM);
}

static Bool threads_are_processes(void)
{
   const HChar *mode = VG_(getenv)("PTWEAVE_THREADS"); /* wrapper/ptweave/wrapper/threads.py */

   return mode != NULL && VG_(strcmp)(mode, "process") == 0;
}

static Bool is_vfork(UWord flags)
{
   return (flags & VKI_CLONE_VFORK) && (VG_(count_living_threads)() == 1 || threads_are_processes());
}

/* As libtthread makes its threads: on the stack of one that leaves at once. Nobody waits for such a child. */
static Bool goes_on(const struct syscall_args *args)
{
   UWord shared = VKI_CLONE_FS | VKI_CLONE_FILES | VKI_CLONE_SYSVSEM | VKI_CLONE_CHILD_SETTID;

   return (args->arg1 & shared) == shared && (args->arg1 & 0xff) == 0 && args->arg2 == 0
          && VG_(gettid)() != VG_(getpid)();
}

static void in_child(ThreadId tid, const struct syscall_args *args)
{
   if (args->arg2 != 0)
      VG_(set_SP)(tid, args->arg2);
   if (args->arg1 & VKI_CLONE_SETTLS) { /* on amd64 the thread pointer is the base of fs */
      ULong base = args->arg5;

      VG_(set_shadow_regs_area)(tid, 0, offsetof(VexGuestAMD64State, guest_FS_CONST), sizeof base,
                                (const UChar *)&base);
   }
   VG_(do_atfork_child)(tid);
   hold_in_child((args->arg1 & VKI_CLONE_VFORK) != 0);
}

/* Make a process. Valgrind's own stack is copied with the memory: the child goes on here, on the program's behalf. */
static void copy(ThreadId tid, const struct syscall_args *args, struct syscall_status *status, UWord *flags)
{
   UWord given = args->arg1 & ~(UWord)(VKI_CLONE_SETTLS | (args->arg1 & VKI_CLONE_VFORK ? VKI_CLONE_VM : 0));
   vki_sigset_t all, saved;

   status->what = SS_COMPLETE;
   VG_(sigfillset)(&all);
   VG_(sigprocmask)(VKI_SIG_SETMASK, &all, &saved);
   if (goes_on(args))
      process_leaving();
   VG_(do_atfork_pre)(tid);
   status->result = VG_(do_syscall)(__NR_clone, given, 0, args->arg3, args->arg4, 0, 0, 0, 0);
   if (!sr_isError(status->result) && sr_Res(status->result) == 0) {
      in_child(tid, args);
   } else if (!sr_isError(status->result)) {
      process_fork_done();
      VG_(do_atfork_parent)(tid);
      *flags |= SF_YIELD_AFTER;
   }
   if (sr_isError(status->result))
      process_fork_done();
   VG_(sigprocmask)(VKI_SIG_SETMASK, &saved, NULL);
}

void __wrap_vgSysWrap_linux_sys_clone_before(ThreadId tid, void *layout, struct syscall_args *args,
                                             struct syscall_status *status, UWord *flags)
{
   if (!is_vfork(args->arg1) && (is_thread(args->arg1) || is_fork(args->arg1))) {
      __real_vgSysWrap_linux_sys_clone_before(tid, layout, args, status, flags);
      return;
   }
   if (!is_vfork(args->arg1) && args->arg1 & (VKI_CLONE_VM | VKI_CLONE_THREAD | VKI_CLONE_SIGHAND)) {
      vg_refuse(status, VKI_EINVAL);
      return;
   }
   copy(tid, args, status, flags);
}

void __wrap_vgSysWrap_generic_sys_fork_before(ThreadId tid, void *layout, struct syscall_args *args,
                                              struct syscall_status *status, UWord *flags)
{
   struct syscall_args vfork = { .number = __NR_clone, .arg1 = VKI_CLONE_VFORK | VKI_SIGCHLD };

   if (args->number == __NR_vfork && is_vfork(vfork.arg1))
      copy(tid, &vfork, status, flags);
   else
      __real_vgSysWrap_generic_sys_fork_before(tid, layout, args, status, flags);
}
