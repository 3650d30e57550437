/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See exec_file.h. */
#include "exec_file.h"

enum { LINK = 48 };

static Int passed = -1;

static Bool is_exe_of(const HChar *path, const HChar *process)
{
   HChar exe[LINK];

   VG_(snprintf)(exe, sizeof exe, "/proc/%s/exe", process);
   return VG_(strcmp)(path, exe) == 0;
}

static Bool is_own_exe(const HChar *path)
{
   HChar pid[16];

   VG_(snprintf)(pid, sizeof pid, "%d", VG_(getpid)());
   return is_exe_of(path, "self") || is_exe_of(path, "thread-self") || is_exe_of(path, pid);
}

/* The number behind a prefix that ends with a slash; -1 when there is anything else. */
static Int number_behind(const HChar *path, const HChar *prefix)
{
   SizeT length = VG_(strlen)(prefix);
   HChar *end;
   Long number;

   if (VG_(strncmp)(path, prefix, length) != 0 || path[length] < '0' || path[length] > '9')
      return -1;
   number = VG_(strtoll10)(path + length, &end);
   return *end == '\0' && number < VG_(fd_hard_limit) ? (Int)number : -1;
}

static Int descriptor_in(const HChar *path)
{
   HChar own[LINK];
   const HChar *const prefixes[] = { "/proc/self/fd/", "/proc/thread-self/fd/", "/dev/fd/", own };
   Int fd = -1;
   UInt i;

   VG_(snprintf)(own, sizeof own, "/proc/%d/fd/", VG_(getpid)());
   for (i = 0; fd < 0 && i < sizeof prefixes / sizeof prefixes[0]; i++)
      fd = number_behind(path, prefixes[i]);
   return fd;
}

/* A script is opened by its interpreter, by the name that the kernel gives it: that is as it is. */
static Bool is_elf(const HChar *link)
{
   SysRes file = VG_(open)(link, VKI_O_RDONLY | PT_O_CLOEXEC | PT_O_NONBLOCK, 0);
   HChar magic[4] = "";

   if (sr_isError(file))
      return False;
   (void)VG_(read)((Int)sr_Res(file), magic, sizeof magic);
   VG_(close)((Int)sr_Res(file));
   return VG_(memcmp)(magic, "\177ELF", sizeof magic) == 0;
}

/* Whether the file still is where /proc says that it was. */
static Bool has_name(const HChar *link, HChar name[EXEC_PATH_MAX])
{
   struct vg_stat there, meant;
   SSizeT length = VG_(readlink)(link, name, EXEC_PATH_MAX - 1);

   if (length <= 0 || length >= EXEC_PATH_MAX - 1)
      return False;
   name[length] = '\0';
   return name[0] == '/' && !sr_isError(VG_(stat)(name, &there)) && !sr_isError(VG_(stat)(link, &meant))
          && there.dev == meant.dev && there.ino == meant.ino;
}

/* Hold the file open through the exec. */
static Bool take_along(const HChar *link, HChar name[EXEC_PATH_MAX])
{
   SysRes file = VG_(open)(link, VKI_O_RDONLY | PT_O_CLOEXEC | PT_O_NONBLOCK, 0);

   exec_file_forget();
   if (sr_isError(file))
      return False;
   passed = VG_(safe_fd)((Int)sr_Res(file));
   if (passed < 0)
      return False;
   VG_(snprintf)(name, EXEC_PATH_MAX, "/proc/self/fd/%d", passed);
   return True;
}

static Bool rename(Int fd, HChar name[EXEC_PATH_MAX])
{
   HChar link[LINK];

   VG_(snprintf)(link, sizeof link, "/proc/self/fd/%d", fd);
   return is_elf(link) && (has_name(link, name) || take_along(link, name));
}

static Int file_meant(const HChar *path)
{
   return is_own_exe(path) ? VG_(cl_exec_fd) : descriptor_in(path);
}

Bool exec_file_rename(const HChar *path, HChar name[EXEC_PATH_MAX])
{
   HChar target[LINK];
   Int fd = file_meant(path);
   SSizeT length;

   if (fd < 0 && (length = VG_(readlink)(path, target, sizeof target - 1)) > 0) { /* a link to it */
      target[length] = '\0';
      fd = file_meant(target);
   }
   return fd >= 0 && rename(fd, name);
}

Bool exec_file_of(Int fd, HChar name[EXEC_PATH_MAX])
{
   return fd >= 0 && fd < VG_(fd_hard_limit) && rename(fd, name);
}

Int exec_file_pass_on(void)
{
   if (passed >= 0)
      VG_(fcntl)(passed, VKI_F_SETFD, 0);
   return passed;
}

void exec_file_forget(void)
{
   if (passed >= 0)
      VG_(close)(passed);
   passed = -1;
}

void exec_file_arrived(const HChar *descriptor)
{
   if (descriptor != NULL)
      VG_(close)((Int)VG_(strtoll10)(descriptor, NULL));
}
