/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Linked in front of Valgrind's table of system calls (-Wl,--wrap=…): calls that are newer than it, and that need nothing
 * of it, go to the kernel as they are. It would answer them with ENOSYS.
 *
 * Not those that would harm the record or the engine: landlock and seccomp (the engine's own calls would be held to them),
 * futex_waitv (threads that are processes), userfaultfd, rseq.
 */
#include "vg_core.h"

enum {
   PT_MLOCK2 = 325, PT_PIDFD_SEND_SIGNAL = 424, PT_PIDFD_OPEN = 434, PT_OPENAT2 = 437, PT_PIDFD_GETFD = 438,
   PT_CACHESTAT = 451, PT_FCHMODAT2 = 452,
   OWN_SIGNAL = 64, /* with which Valgrind ends threads */
   PT_EBADF = 9, PT_EINVAL = 22, PT_EMFILE = 24, PT_ENOSYS = 38,
};

/* m_syswrap's SyscallTableEntry of 3.19. */
struct entry {
   void (*before)(ThreadId tid, void *layout, struct syscall_args *args, struct syscall_status *status, UWord *flags);
   void (*after)(ThreadId tid, struct syscall_args *args, struct syscall_status *status);
};

extern const struct entry *__real_vgModuleLocal_get_linux_syscall_entry(UInt number);
extern const struct entry *__wrap_vgModuleLocal_get_linux_syscall_entry(UInt number);

/* m_syswrap: whether a descriptor is the program's to use; a new one also has to be below its limit. */
extern Bool vgModuleLocal_fd_allowed(Int fd, const HChar *name, ThreadId tid, Bool is_new);

static Bool is_in_proc(UWord path)
{
   static const HChar start[] = "/proc/";
   UInt i;

   for (i = 0; i < sizeof start - 1; i++)
      if (!VG_(am_is_valid_for_client)(path + i, 1, VKI_PROT_READ) || ((const HChar *)path)[i] != start[i])
         return False;
   return True;
}

static void before_any(ThreadId tid, void *layout, struct syscall_args *args, struct syscall_status *status, UWord *flags)
{
   (void)tid, (void)layout, (void)args, (void)status;
   *flags |= SF_MAY_BLOCK;
}

/* The first argument is a descriptor. */
static void before_with_file(ThreadId tid, void *layout, struct syscall_args *args, struct syscall_status *status,
                             UWord *flags)
{
   const Int fd = (Int)args->arg1;

   before_any(tid, layout, args, status, flags);
   if (fd >= 0 && !vgModuleLocal_fd_allowed(fd, "newer call", tid, False)) /* of others the kernel says what they are */
      vg_refuse(status, PT_EBADF);
}

/* Valgrind answers openat for what /proc says of a process itself; a program that cannot use this one calls that. */
static void before_openat2(ThreadId tid, void *layout, struct syscall_args *args, struct syscall_status *status,
                           UWord *flags)
{
   if (is_in_proc(args->arg2))
      vg_refuse(status, PT_ENOSYS);
   else
      before_with_file(tid, layout, args, status, flags);
}

static void before_signal(ThreadId tid, void *layout, struct syscall_args *args, struct syscall_status *status,
                          UWord *flags)
{
   before_with_file(tid, layout, args, status, flags);
   *flags |= SF_POLL_AFTER; /* it may be for this process */
   if (args->arg2 == OWN_SIGNAL)
      vg_refuse(status, PT_EINVAL);
}

static void after_open(ThreadId tid, struct syscall_args *args, struct syscall_status *status)
{
   const Int fd = (Int)sr_Res(status->result);

   (void)args;
   if (vgModuleLocal_fd_allowed(fd, "newer call", tid, True))
      return;
   VG_(close)(fd);
   vg_refuse(status, PT_EMFILE);
}

const struct entry *__wrap_vgModuleLocal_get_linux_syscall_entry(UInt number)
{
   static const struct entry any = { before_any, NULL }, with_file = { before_with_file, NULL },
      opens = { before_any, after_open }, opens_with_file = { before_with_file, after_open },
      openat2 = { before_openat2, after_open }, signals = { before_signal, NULL };

   switch (number) {
   case PT_MLOCK2:
      return &any;
   case PT_CACHESTAT:
   case PT_FCHMODAT2:
      return &with_file;
   case PT_PIDFD_OPEN:
      return &opens;
   case PT_PIDFD_GETFD:
      return &opens_with_file;
   case PT_OPENAT2:
      return &openat2;
   case PT_PIDFD_SEND_SIGNAL:
      return &signals;
   default:
      return __real_vgModuleLocal_get_linux_syscall_entry(number);
   }
}
