/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Linked in front of Valgrind's handler of clone (-Wl,--wrap=…).
 *
 * Valgrind knows threads (CLONE_VM, FS and FILES together), fork and vfork, and gives up on anything else. Programs
 * also make processes that share descriptors or the working directory but not memory (libtthread's pseudo-threads
 * are such): those are handled here, as Valgrind handles fork. What cannot be done fails with EINVAL instead of
 * ending the program.
 */
#include "vg_core.h"
#include "process.h"
#include "libvex_guest_amd64.h"

/* m_syswrap's SyscallArgs and SyscallStatus of 3.19. */
struct syscall_args { Word number; UWord arg1, arg2, arg3, arg4, arg5, arg6, arg7, arg8; };
struct syscall_status { Int what; SysRes result; };
enum { SS_COMPLETE = 1, SF_YIELD_AFTER = 1 << 4 };

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
}

void __wrap_vgSysWrap_linux_sys_clone_before(ThreadId tid, void *layout, struct syscall_args *args,
                                             struct syscall_status *status, UWord *flags)
{
   vki_sigset_t all, saved;

   if (is_thread(args->arg1) || is_fork(args->arg1)) {
      __real_vgSysWrap_linux_sys_clone_before(tid, layout, args, status, flags);
      return;
   }
   status->what = SS_COMPLETE;
   if (args->arg1 & (VKI_CLONE_VM | VKI_CLONE_THREAD | VKI_CLONE_SIGHAND)) {
      status->result = VG_(mk_SysRes_Error)(VKI_EINVAL);
      return;
   }
   VG_(sigfillset)(&all);
   VG_(sigprocmask)(VKI_SIG_SETMASK, &all, &saved);
   if (goes_on(args))
      process_leaving();
   VG_(do_atfork_pre)(tid);
   /* Valgrind's own stack is copied with the memory: the child goes on here, on the program's behalf. */
   status->result = VG_(do_syscall)(__NR_clone, args->arg1 & ~(UWord)VKI_CLONE_SETTLS, 0, args->arg3, args->arg4,
                                    0, 0, 0, 0);
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
