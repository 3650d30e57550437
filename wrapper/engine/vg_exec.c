/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Linked in front of what Valgrind does at an exec (-Wl,--wrap=…).
 *
 * Valgrind fails the exec of a set-user-id program and of one with capabilities, and dies on one for another architecture.
 * Such programs run as they are here, without the engine, and a record says so. So do those that another program of the
 * recording traces (tracer.h), and without libtthread, too: a debugger would meet its signals.
 *
 * Valgrind follows an exec through its launcher, which finds the tool for the program's architecture and names
 * itself to it in the environment. The launcher is an ordinary program: what is in LD_PRELOAD for the target would
 * run in it too. This tool is static and for one architecture, so it is its own launcher: /proc/thread-self/exe, which
 * can be executed wherever the file is and whoever the process is by then (not /proc/self/exe: before another thread
 * than the first one makes the exec Valgrind ends the others, and the first one, ended, has no exe any more). Valgrind
 * also takes the path for argv[0]; the program's own choice goes along in the environment, as the spool's descriptor
 * does, and client_env.c cleans up.
 */
#include "vg_core.h"
#include "client_env.h"
#include "exec_file.h"
#include "hold.h"
#include "output.h"
#include "process.h"
#include "sideband.h"
#include "stop.h"
#include "tracer.h"
#include "vg_limits.h"

extern HChar **__real_vgPlain_env_setenv(HChar ***environment, const HChar *name, const HChar *value);
extern HChar **__wrap_vgPlain_env_setenv(HChar ***environment, const HChar *name, const HChar *value);
extern const HChar *VG_(name_of_launcher);

static const HChar *chosen_name;   /* argv[0] of the exec being made, if it is not the path; the program's memory */

HChar **__wrap_vgPlain_env_setenv(HChar ***environment, const HChar *name, const HChar *value)
{
   HChar descriptor[16], limits[LIMITS_TEXT], held[HOLD_TEXT];

   if (VG_(strcmp)(name, "VALGRIND_LIB") == 0) { /* set for a program that is followed, and for nothing else */
      VG_(snprintf)(descriptor, sizeof descriptor, "%d", output_pass_on());
      (void)__real_vgPlain_env_setenv(environment, CLIENT_ENV_SPOOL, descriptor);
      VG_(snprintf)(descriptor, sizeof descriptor, "%d", process_pass_on());
      (void)__real_vgPlain_env_setenv(environment, CLIENT_ENV_STATE, descriptor);
      limits_pass_on(limits);
      (void)__real_vgPlain_env_setenv(environment, CLIENT_ENV_LIMITS, limits);
      if (hold_pass_on(held))
         (void)__real_vgPlain_env_setenv(environment, CLIENT_ENV_HELD, held);
      if (exec_file_pass_on() >= 0) {
         VG_(snprintf)(descriptor, sizeof descriptor, "%d", exec_file_pass_on());
         (void)__real_vgPlain_env_setenv(environment, CLIENT_ENV_FILE, descriptor);
      }
      (void)__real_vgPlain_env_setenv(environment, "VALGRIND_LAUNCHER", VG_(name_of_launcher));
      if (chosen_name != NULL)
         (void)__real_vgPlain_env_setenv(environment, CLIENT_ENV_NAME, chosen_name);
   }
   return __real_vgPlain_env_setenv(environment, name, value);
}

extern Bool __real_vgPlain_should_we_trace_this_child(const HChar *exe, const HChar **argv);
extern Bool __wrap_vgPlain_should_we_trace_this_child(const HChar *exe, const HChar **argv);

enum { HEADER = 64, ELF_CLASS = 4, ELF_CLASS_64 = 2, ELF_MACHINE = 18, ELF_AMD64 = 62, SCRIPT_DEPTH = 4 };

/* The interpreter that a script's first line names, cut out in place; NULL if there is none. */
static HChar *interpreter(HChar *header)
{
   HChar *begin = header + 2, *end;

   while (*begin == ' ' || *begin == '\t')
      begin++;
   for (end = begin; *end != '\0' && *end != ' ' && *end != '\t' && *end != '\n'; end++)
      ;
   if (*end == '\0' || end == begin)
      return NULL;
   *end = '\0';
   return begin;
}

static Bool has_capabilities(const HChar *path)
{
   return vg_call(__NR_getxattr, (UWord)path, (UWord)"security.capability", 0, 0) > 0;
}

/* False: the file is there, and the engine cannot run it. */
static Bool can_run(const HChar *path, Int depth)
{
   HChar header[4 * HEADER + 1];
   struct vg_stat stat;
   SysRes file;
   Int size;

   if (sr_isError(VG_(stat)(path, &stat)) || !VKI_S_ISREG(stat.mode))
      return True; /* the exec fails by itself, for its own reason */
   if (stat.mode & (VKI_S_ISUID | VKI_S_ISGID) || has_capabilities(path))
      return False;
   file = VG_(open)(path, VKI_O_RDONLY | PT_O_CLOEXEC, 0);
   if (sr_isError(file))
      return True;
   size = VG_(read)((Int)sr_Res(file), header, sizeof header - 1);
   VG_(close)((Int)sr_Res(file));
   if (size < 4)
      return True;
   header[size] = '\0';
   if (header[0] == '#' && header[1] == '!') {
      HChar *program = interpreter(header);

      return program == NULL || depth == 0 || can_run(program, depth - 1);
   }
   if (VG_(memcmp)(header, "\177ELF", 4) != 0 || size < HEADER)
      return True;
   return header[ELF_CLASS] == ELF_CLASS_64 && header[ELF_MACHINE] == ELF_AMD64 && header[ELF_MACHINE + 1] == 0;
}

static Bool debugged; /* the exec being made is that of a program which another one of the recording traces */

Bool __wrap_vgPlain_should_we_trace_this_child(const HChar *exe, const HChar **argv)
{
   chosen_name = NULL;
   debugged = tracer_is_simulated();
   if (exe != NULL && argv != NULL && VG_(am_is_valid_for_client)((Addr)argv[0], 1, VKI_PROT_READ)
       && VG_(strcmp)(argv[0], exe) != 0)
      chosen_name = argv[0];
   if (exe == NULL || (!debugged && can_run(exe, SCRIPT_DEPTH)
                       && VG_(access)(VG_(name_of_launcher), False, False, True) == 0))
      return __real_vgPlain_should_we_trace_this_child(exe, argv);
   sideband_put(PTSOFT_UNTRACED, (struct sideband_values){ { (ULong)VG_(gettid)() } }, exe);
   return False;
}

extern void __real_vgPlain_env_remove_valgrind_env_stuff(HChar **environment);
extern void __wrap_vgPlain_env_remove_valgrind_env_stuff(HChar **environment);

static const HChar preload[] = "LD_PRELOAD=", library[] = "/libtthread.so";

/* Take libtthread out of a list of libraries. True: nothing is left. */
static Bool without_libtthread(HChar *list)
{
   HChar *to = list, *end;

   for (const HChar *from = list; *from != '\0'; from = *end == '\0' ? end : end + 1) {
      SizeT length;

      end = VG_(strchr)(from, ':');
      if (end == NULL)
         end = (HChar *)from + VG_(strlen)(from);
      length = (SizeT)(end - from);
      if (length >= sizeof library - 1 && VG_(strncmp)(end - sizeof library + 1, library, sizeof library - 1) == 0)
         continue;
      if (to != list)
         *to++ = ':';
      VG_(memmove)(to, from, length);
      to += length;
   }
   *to = '\0';
   return to == list;
}

/* What a program that is not followed finds: Valgrind has copied the list, and LD_PRELOAD. */
void __wrap_vgPlain_env_remove_valgrind_env_stuff(HChar **environment)
{
   HChar **to = environment;

   __real_vgPlain_env_remove_valgrind_env_stuff(environment);
   if (!debugged || environment == NULL)
      return;
   for (HChar **from = environment; *from != NULL; from++)
      if (VG_(strncmp)(*from, preload, sizeof preload - 1) != 0 || !without_libtthread(*from + sizeof preload - 1))
         *to++ = *from;
   *to = NULL;
}

/*
 * Valgrind throws signals away that are pending when a program calls exec (it takes them all with sigtimedwait
 * first). The kernel keeps them for the new program: so nothing is taken then.
 */
extern Int __real_vgPlain_sigtimedwait_zero(const vki_sigset_t *set, vki_siginfo_t *info);
extern Int __wrap_vgPlain_sigtimedwait_zero(const vki_sigset_t *set, vki_siginfo_t *info);

Int __wrap_vgPlain_sigtimedwait_zero(const vki_sigset_t *set, vki_siginfo_t *info)
{
   vki_sigset_t let;
   Int signal;

   if (process_is_execing())
      return 0;
   do
      signal = __real_vgPlain_sigtimedwait_zero(hold_back(set, &let), info);
   while (stop_instead(signal));
   return signal;
}
