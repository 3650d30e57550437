/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Linked in front of Valgrind's handlers of calls that map memory (-Wl,--wrap=…): see vg_space.h. */
#include "vg_space.h"

enum { OF_CLIENT = SkAnonC | SkFileC | SkShmC, MAP_FIXED_ = 0x10 };

extern const NSegment *VG_(am_next_nsegment)(const NSegment *here, Bool forwards);
extern Addr VG_(brk_limit);

struct space_limit space_limit;

static Bool kept;

void space_init(const HChar *inherited)
{
   HChar *rest;

   if (inherited == NULL) {
      (void)vg_call(__NR_getrlimit, PT_RLIMIT_AS, (UWord)&space_limit, 0, 0);
      return;
   }
   space_limit.soft = (ULong)VG_(strtoll10)(inherited, &rest);
   space_limit.hard = *rest == ',' ? (ULong)VG_(strtoll10)(rest + 1, NULL) : space_limit.soft;
   kept = True;
}

void space_set(const struct space_limit *limit)
{
   space_limit = *limit;
   kept = True;
}

const struct space_limit *space_kept(void)
{
   return kept ? &space_limit : NULL;
}

static Bool is_libtthreads(const NSegment *segment)
{
   const HChar *name = segment->kind == SkFileC ? VG_(am_get_filename)(segment) : NULL;

   return name != NULL && VG_(strstr)(name, "/memfd:ptweave-") == name;
}

static ULong used(void)
{
   const NSegment *segment;
   ULong sum = 0;

   for (segment = VG_(am_find_nsegment)(0); segment != NULL; segment = VG_(am_next_nsegment)(segment, True))
      if ((segment->kind & OF_CLIENT) && !is_libtthreads(segment))
         sum += segment->end + 1 - segment->start;
   return sum;
}

static Bool allows(ULong more)
{
   return !kept || space_limit.soft == ~0ULL || used() + more <= space_limit.soft;
}

static Bool opened_by_libtthread(Int fd)
{
   HChar link[32], name[32];

   VG_(snprintf)(link, sizeof link, "/proc/self/fd/%d", fd);
   return fd >= 0 && VG_(readlink)(link, name, sizeof name) >= 15 && VG_(strncmp)(name, "/memfd:ptweave-", 15) == 0;
}

/* What Valgrind's handler of mmap calls: that itself is called from its own file. */
extern SysRes __real_vgModuleLocal_generic_PRE_sys_mmap(ThreadId tid, UWord start, UWord size, UWord rights, UWord flags,
                                                        UWord fd, Off64T offset);
extern SysRes __wrap_vgModuleLocal_generic_PRE_sys_mmap(ThreadId tid, UWord start, UWord size, UWord rights, UWord flags,
                                                        UWord fd, Off64T offset);

/* A mapping at a fixed place takes that of others, as in the loader's reservation of a library's segments. */
SysRes __wrap_vgModuleLocal_generic_PRE_sys_mmap(ThreadId tid, UWord start, UWord size, UWord rights, UWord flags,
                                                 UWord fd, Off64T offset)
{
   if (!(flags & MAP_FIXED_) && !allows(size) && !opened_by_libtthread((Int)fd))
      return VG_(mk_SysRes_Error)(VKI_ENOMEM);
   return __real_vgModuleLocal_generic_PRE_sys_mmap(tid, start, size, rights, flags, fd, offset);
}

VG_BEFORE(generic_sys_mremap)
{
   if (args->arg3 > args->arg2 && !allows(args->arg3 - args->arg2))
      vg_refuse(status, VKI_ENOMEM);
   else
      __real_vgSysWrap_generic_sys_mremap_before(tid, layout, args, status, flags);
}

VG_BEFORE(generic_sys_brk)
{
   if (args->arg1 > VG_(brk_limit) && !allows(args->arg1 - VG_(brk_limit)))
      vg_answer(status, VG_(mk_SysRes_Success)(VG_(brk_limit))); /* where the break is */
   else
      __real_vgSysWrap_generic_sys_brk_before(tid, layout, args, status, flags);
}
