/* SPDX-License-Identifier: MIT */
/*
 * Runs a program natively, an instruction at a time, and prints what ran in each process and each image (exec):
 *
 *     count N hash H
 *
 * the hash being that of check_trace.c. The oracle of the soft engine: the processor says what ran.
 * usage: ptrace_log [-d DUMP] PROGRAM ARGUMENT…
 *     -d DUMP  write `PID ADDRESS` for each
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 64 };

struct process {
   pid_t pid;
   uint64_t count, hash;
   uint64_t ip;        /* of the instruction that runs now */
   uint64_t string;    /* of a string instruction that began, and counts when it is done; 0 none */
   int stepping;       /* an instruction was started: not a signal's delivery, not the end of an exec */
   int execed;
};

static struct process processes[PROCESSES];
static FILE *dump;

static struct process *find(pid_t pid)
{
   int i;

   for (i = 0; i < PROCESSES; i++)
      if (processes[i].pid == pid)
         return &processes[i];
   for (i = 0; i < PROCESSES; i++)
      if (processes[i].pid == 0) {
         processes[i] = (struct process){ .pid = pid };
         return &processes[i];
      }
   fprintf(stderr, "ptrace_log: too many processes\n");
   exit(2);
}

static int is_string(pid_t pid, uint64_t ip)
{
   long word = ptrace(PTRACE_PEEKTEXT, pid, (void *)ip, NULL);

   return (word & 0xff) == 0xf3 || (word & 0xff) == 0xf2;
}

static void count(struct process *process, uint64_t ip)
{
   process->count++;
   process->hash = (process->hash ^ ip) * 0x9E3779B97F4A7C15ull;
   process->hash ^= process->hash >> 29;
   if (dump)
      fprintf(dump, "%d %" PRIx64 "\n", (int)process->pid, ip);
}

static void end_string(struct process *process)
{
   if (process->string)
      count(process, process->string);
   process->string = 0;
}

static void print(struct process *process)
{
   end_string(process);
   printf("count %" PRIu64 " hash %016" PRIx64 "\n", process->count, process->hash);
   process->count = process->hash = 0;
}

/* The instruction at process->ip was executed: a string instruction perhaps only in part. */
static void note(struct process *process)
{
   if (process->string != process->ip)
      end_string(process);
   if (is_string(process->pid, process->ip))
      process->string = process->ip;
   else
      count(process, process->ip);
}

static void step(struct process *process, int signal)
{
   struct user_regs_struct registers;

   if (ptrace(PTRACE_GETREGS, process->pid, NULL, &registers) < 0)
      return;
   process->ip = registers.rip;
   process->stepping = signal == 0;
   ptrace(PTRACE_SINGLESTEP, process->pid, NULL, (void *)(intptr_t)signal);
}

/* A stop: complete, interrupted by a signal, or one that the kernel announces. Returns the signal to pass on. */
static int stopped(struct process *process, int status)
{
   int signal = WSTOPSIG(status), event = status >> 16;

   if (event == PTRACE_EVENT_EXEC) { /* the call completed; what ran until now is the old image's */
      if (process->count) {
         note(process);
         print(process);
      }
      process->execed = 1;
      return 0;
   }
   if (event != 0)                  /* a fork: the call itself is about to complete */
      return 0;
   if (signal == SIGSTOP || signal == SIGCHLD) /* a new child's first; ignored: nothing ran, nothing will for it */
      return 0;
   if (signal == SIGTRAP) {
      if (process->stepping && !process->execed)
         note(process);
      process->execed = 0;
      return 0;
   }
   if (process->string != process->ip)
      end_string(process);
   process->string = 0;             /* interrupted: it begins anew */
   return signal;
}

int main(int argc, char **argv)
{
   int status, started = 0;
   pid_t pid;

   if (argc > 2 && strcmp(argv[1], "-d") == 0) {
      dump = fopen(argv[2], "w");
      argv += 2;
      argc -= 2;
   }
   if (argc < 2)
      return 2;
   pid = fork();
   if (pid == 0) {
      ptrace(PTRACE_TRACEME, 0, NULL, NULL);
      execv(argv[1], argv + 1);
      _exit(127);
   }
   waitpid(pid, &status, 0);
   ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)(PTRACE_O_TRACEFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL));
   step(find(pid), 0);
   for (;;) {
      struct process *process;

      pid = waitpid(-1, &status, __WALL);
      if (pid < 0)
         break;
      started++;
      process = find(pid);
      if (WIFSTOPPED(status)) {
         int event = status >> 16, announced = event == PTRACE_EVENT_FORK;
         int signal = stopped(process, status);

         if (announced) {           /* let the call complete: its stop is still to come */
            ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL);
            continue;
         }
         step(process, signal);
      } else {
         if (process->stepping)     /* the call that ended it */
            note(process);
         print(process);
         process->pid = 0;
      }
   }
   return started == 0;
}
