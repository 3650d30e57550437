/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See process.h. Runs under the big lock. */
#include "process.h"
#include "sideband.h"

enum { LIVES_MAX = 1 << 20 }; /* images that one pid can have in a run */

static struct window header;             /* page 0 of the state file */
static struct ptsoft_process without;    /* what is counted in when there is no file */
static struct ptsoft_process *state = &without;
static HChar prefix[OUTPUT_NAME / 2];
static Int passed = -1;                  /* the state file, held open for the exec being made */
static Int forking_tid;
static enum ptsoft_began forking = PTSOFT_FORKED;
static UChar *buffer_used;               /* by number: VG_N_THREADS are enough */

void process_file_name(HChar name[OUTPUT_NAME], Int stream, const HChar *suffix)
{
   if (stream < 0)
      VG_(snprintf)(name, OUTPUT_NAME, "%s.%s", prefix, suffix);
   else
      VG_(snprintf)(name, OUTPUT_NAME, "%s.%d.%s", prefix, stream, suffix);
}

/* Take the first free name of this pid: the file is made here and now, so that nobody else gets it. */
static Bool claim_name(void)
{
   Int life;

   for (life = 0; life < LIVES_MAX; life++) {
      Int fd;

      VG_(snprintf)(prefix, sizeof prefix, "%d.%d", VG_(getpid)(), life);
      process_file_name(header.name, -1, "state");
      fd = output_open(header.name, VKI_O_CREAT | VKI_O_EXCL | VKI_O_RDWR);
      if (fd >= 0) {
         VG_(close)(fd);
         return True;
      }
      if (fd != -VKI_EEXIST)
         return False;
   }
   return False;
}

static void executable_name(HChar exe[PTSOFT_EXE_MAX])
{
   HChar link[32];

   VG_(snprintf)(link, sizeof link, "/proc/self/fd/%d", VG_(cl_exec_fd));
   if (VG_(cl_exec_fd) < 0 || VG_(readlink)(link, exe, PTSOFT_EXE_MAX - 1) <= 0)
      VG_(strncpy)(exe, VG_(args_the_exename) ? VG_(args_the_exename) : "", PTSOFT_EXE_MAX - 1);
}

/* The kernel named the task after the engine: name it after the program, as exec would have. */
static void set_name(const HChar *name)
{
   enum { PR_SET_NAME = 15, SIZE = 16 };
   HChar text[SIZE] = "";

   VG_(strncpy)(text, name, SIZE - 1);
   (void)VG_(do_syscall)(__NR_prctl, PR_SET_NAME, (UWord)text, 0, 0, 0, 0, 0, 0);
   sideband_put(PTSOFT_COMM, (struct sideband_values){ { state->tid } }, text);
}

void process_begin(enum ptsoft_began began, Int parent_tid)
{
   if (claim_name() && window_map(&header, 0, PTSOFT_PAGE))
      state = (struct ptsoft_process *)header.base;
   else if (output_fits(PTSOFT_PAGE)) /* saying it writes to a file, too */
      VG_(umsg)("ptsoft: the process cannot be recorded: no file for it\n");
   state->pid = (UInt)VG_(getpid)();
   state->tid = (UInt)VG_(gettid)();
   state->parent_pid = (UInt)VG_(getppid)();
   state->parent_tid = (UInt)parent_tid;
   state->began = began;
   state->ended = PTSOFT_RUNNING;
   state->tsc_begin = time_stamp();
   executable_name(state->exe);
   state->magic = PTSOFT_PROCESS_MAGIC; /* last: the page is whole */
   if (began == PTSOFT_STARTED)
      set_name(VG_(basename)(state->exe));
}

void process_forking(void)
{
   forking_tid = VG_(gettid)();
}

void process_leaving(void)
{
   forking = PTSOFT_WENT_ON;
}

void process_fork_done(void)
{
   forking = PTSOFT_FORKED;
}

void process_forked(void)
{
   struct window parent = header;
   struct ptsoft_process *parent_state = state;

   VG_(memset)(&without, 0, sizeof without);
   VG_(memset)(&header, 0, sizeof header);
   if (buffer_used != NULL)
      VG_(memset)(buffer_used, 0, VG_N_THREADS);
   state = &without;
   process_begin(forking, forking_tid);
   process_fork_done();
   if (state == &without && parent.base != NULL)
      __sync_fetch_and_add(&parent_state->children_lost, 1);
   window_forget(&parent);
}

Bool process_buffer(struct window *window, uint64_t *number)
{
   if (state == &without)
      return False;
   if (buffer_used == NULL)
      buffer_used = VG_(calloc)("ptsoft.buffers", VG_N_THREADS, 1);
   for (*number = 0; buffer_used[*number]; ++*number)
      ;
   process_file_name(window->name, -1, "buf");
   if (!window_map(window, *number * PTSOFT_BUFFER, PTSOFT_BUFFER))
      return False;
   buffer_used[*number] = 1;
   return True;
}

void process_buffer_free(struct window *window, ULong number)
{
   window_forget(window);
   buffer_used[number] = 0;
}

void process_ending(enum ptsoft_ended how)
{
   state->tsc_end = how == PTSOFT_RUNNING ? 0 : time_stamp();
   state->ended = how;
}

Int process_pass_on(void)
{
   Int fd = state == &without ? -1 : output_open(header.name, VKI_O_RDWR);

   passed = fd < 0 ? -1 : VG_(safe_fd)(fd);
   if (passed >= 0)
      VG_(fcntl)(passed, VKI_F_SETFD, 0);
   else
      process_ending(PTSOFT_UNRECORDED); /* unless it has a file */
   return passed;
}

void process_exec_failed(void)
{
   process_ending(PTSOFT_RUNNING);
   if (passed >= 0)
      VG_(close)(passed);
   passed = -1;
}

void process_arrived(const HChar *descriptor)
{
   struct ptsoft_process *before;
   SysRes mapped;
   Int fd;

   if (descriptor == NULL || (fd = (Int)VG_(strtoll10)(descriptor, NULL)) < 0)
      return;
   if (state == &without) {
      mapped = VG_(am_shared_mmap_file_float_valgrind)(PTSOFT_PAGE, VKI_PROT_READ | VKI_PROT_WRITE, fd, 0);
      if (!sr_isError(mapped)) {
         before = (struct ptsoft_process *)sr_Res(mapped);
         before->ended = PTSOFT_UNRECORDED;
         (void)VG_(am_munmap_valgrind)((Addr)before, PTSOFT_PAGE);
      }
   }
   VG_(close)(fd);
}

static void give(Int stream, const HChar *suffix, UInt user)
{
   HChar name[OUTPUT_NAME];

   process_file_name(name, stream, suffix);
   output_give(name, user);
}

void process_give(UInt user)
{
   static const HChar *const of_process[] = { "state", "rec", "buf", "code" };
   UInt i;

   if (state == &without)
      return;
   for (i = 0; i < sizeof of_process / sizeof *of_process; i++)
      give(-1, of_process[i], user);
   for (i = 0; i < state->streams; i++) {
      give((Int)i, "pt", user);
      give((Int)i, "sys", user);
   }
}

struct ptsoft_process *process_state(void)
{
   return state;
}

struct ptsoft_thread *process_thread_page(struct window *window, UInt stream)
{
   if (state == &without)
      return NULL;
   VG_(strcpy)(window->name, header.name);
   if (!window_map(window, (ULong)PTSOFT_PAGE * (1 + stream), PTSOFT_PAGE))
      return NULL;
   return (struct ptsoft_thread *)window->base;
}
