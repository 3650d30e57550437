/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Linked in front of Valgrind's handlers of limits (-Wl,--wrap=…): see vg_limits.h. Other limits are left to them. */
#include "vg_limits.h"
#include "vg_space.h"

extern Int VG_(fd_soft_limit);

struct limit { ULong soft, hard; }; /* as all calls have it on amd64 */

/* m_clientstate: the limit of the stack as the program sees it */
extern struct limit VG_(client_rlimit_stack);

static ULong hard; /* VG_(fd_hard_limit) at most */

void limits_init(const HChar *inherited)
{
   const ULong most = (ULong)VG_(fd_hard_limit);
   HChar *rest;
   Long soft;

   hard = most;
   space_init(NULL);
   if (inherited == NULL)
      return;
   soft = VG_(strtoll10)(inherited, &rest);
   if (*rest == ',')
      hard = (ULong)VG_(strtoll10)(rest + 1, &rest);
   if (*rest == ',')
      space_init(rest + 1);
   if (hard > most)
      hard = most;
   VG_(fd_soft_limit) = soft < (Long)hard ? (Int)soft : (Int)hard;
}

void limits_pass_on(HChar text[LIMITS_TEXT])
{
   const struct space_limit *space = space_kept();

   if (space != NULL) /* no limit is -1 */
      VG_(snprintf)(text, LIMITS_TEXT, "%d,%llu,%lld,%lld", VG_(fd_soft_limit), hard, (Long)space->soft,
                    (Long)space->hard);
   else
      VG_(snprintf)(text, LIMITS_TEXT, "%d,%llu", VG_(fd_soft_limit), hard);
}

/* Has the program CAP_SYS_RESOURCE (capget(2), version 3)? */
static Bool may_raise(void)
{
   const UInt header[2] = { 0x20080522, 0 };
   struct { UInt effective, permitted, inheritable; } sets[2];

   return vg_call(__NR_capget, (UWord)header, (UWord)sets, 0, 0) == 0 && (sets[0].effective & 1u << 24) != 0;
}

/* setrlimit(2): who may raise the hard limit may raise it to what the engine needs for itself. */
static UWord set(const struct limit *wanted)
{
   if (wanted->soft > wanted->hard)
      return VKI_EINVAL;
   if (wanted->hard > hard && (wanted->hard > (ULong)VG_(fd_hard_limit) || !may_raise()))
      return VKI_EPERM;
   VG_(fd_soft_limit) = (Int)wanted->soft;
   hard = wanted->hard;
   return 0;
}

static UWord set_space(const struct limit *wanted)
{
   if (wanted->soft > wanted->hard)
      return VKI_EINVAL;
   if (wanted->hard > space_limit.hard && !may_raise())
      return VKI_EPERM;
   space_set(&(struct space_limit){ wanted->soft, wanted->hard });
   return 0;
}

/* The kernel is told: it has no use for it until a program is executed. */
static UWord set_stack(const struct limit *wanted)
{
   const Int error = vg_call(__NR_setrlimit, VKI_RLIMIT_STACK, (UWord)wanted, 0, 0);

   if (error == 0)
      VG_(client_rlimit_stack) = *wanted;
   return (UWord)-error;
}

static UWord set_limit(UWord which, const struct limit *wanted)
{
   return which == PT_RLIMIT_AS ? set_space(wanted) : which == VKI_RLIMIT_STACK ? set_stack(wanted) : set(wanted);
}

static struct limit limit_now(UWord which)
{
   if (which == VKI_RLIMIT_STACK)
      return VG_(client_rlimit_stack);
   if (which == PT_RLIMIT_AS)
      return (struct limit){ space_limit.soft, space_limit.hard };
   return (struct limit){ (ULong)VG_(fd_soft_limit), hard };
}

/* Either address may be 0. */
static UWord change(UWord which, Addr wanted, Addr before)
{
   const struct limit now = limit_now(which);
   UWord error;

   if ((wanted != 0 && !VG_(am_is_valid_for_client)(wanted, sizeof now, VKI_PROT_READ))
       || (before != 0 && !VG_(am_is_valid_for_client)(before, sizeof now, VKI_PROT_WRITE)))
      return VKI_EFAULT;
   error = wanted == 0 ? 0 : set_limit(which, (const struct limit *)wanted);
   if (error == 0 && before != 0)
      *(struct limit *)before = now;
   return error;
}

static void answer(struct syscall_status *status, UWord which, Addr wanted, Addr before)
{
   UWord error = change(which, wanted, before);

   vg_answer(status, error != 0 ? VG_(mk_SysRes_Error)(error) : VG_(mk_SysRes_Success)(0));
}

static Bool is_ours(UWord pid, UWord which)
{
   return (pid == 0 || pid == (UWord)VG_(getpid)())
          && (which == VKI_RLIMIT_NOFILE || which == PT_RLIMIT_AS || which == VKI_RLIMIT_STACK);
}

#define AFTER(name)                                                                                                \
   extern void __real_vgSysWrap_##name##_after(ThreadId tid, struct syscall_args *args,                            \
                                               struct syscall_status *status);                                     \
   extern void __wrap_vgSysWrap_##name##_after(ThreadId tid, struct syscall_args *args,                            \
                                               struct syscall_status *status);                                     \
   void __wrap_vgSysWrap_##name##_after(ThreadId tid, struct syscall_args *args, struct syscall_status *status)

VG_BEFORE(linux_sys_prlimit64)
{
   if (is_ours(args->arg1, args->arg2))
      answer(status, args->arg2, args->arg3, args->arg4);
   else
      __real_vgSysWrap_linux_sys_prlimit64_before(tid, layout, args, status, flags);
}

AFTER(linux_sys_prlimit64)
{
   if (!is_ours(args->arg1, args->arg2))
      __real_vgSysWrap_linux_sys_prlimit64_after(tid, args, status);
}

VG_BEFORE(generic_sys_setrlimit)
{
   if (is_ours(0, args->arg1))
      answer(status, args->arg1, args->arg2, 0);
   else
      __real_vgSysWrap_generic_sys_setrlimit_before(tid, layout, args, status, flags);
}

VG_BEFORE(generic_sys_getrlimit)
{
   if (is_ours(0, args->arg1))
      answer(status, args->arg1, 0, args->arg2);
   else
      __real_vgSysWrap_generic_sys_getrlimit_before(tid, layout, args, status, flags);
}

AFTER(generic_sys_getrlimit)
{
   if (!is_ours(0, args->arg1))
      __real_vgSysWrap_generic_sys_getrlimit_after(tid, args, status);
}
