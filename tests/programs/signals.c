/* SPDX-License-Identifier: MIT */
/* Signals of every kind: faults left by siglongjmp, repaired by changing registers, on an alternate stack; traps;
   timers that interrupt and restart calls; signals between threads. Prints what it counted. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static sigjmp_buf out;
static volatile int jumps, skipped, traps, alarms, repaired, received;

static void jump(int signal)
{
   (void)signal;
   jumps++;
   siglongjmp(out, 1);
}

static void skip_ud2(int signal, siginfo_t *info, void *context)
{
   (void)signal;
   (void)info;
   ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
   skipped++;
}

static void on_trap(int signal)
{
   (void)signal;
   traps++;
}

/* The divisor is in rcx: give it another value and let the division run again, with all else as it was. */
static void repair_division(int signal, siginfo_t *info, void *context)
{
   (void)signal;
   (void)info;
   ((ucontext_t *)context)->uc_mcontext.gregs[REG_RCX] = 7;
   repaired++;
}

static void on_alarm(int signal)
{
   (void)signal;
   alarms++;
}

static void on_user(int signal)
{
   (void)signal;
   received++;
}

static void install(int signal, void *handler, int flags)
{
   struct sigaction action;

   memset(&action, 0, sizeof action);
   action.sa_sigaction = (void (*)(int, siginfo_t *, void *))handler;
   action.sa_flags = flags;
   sigaction(signal, &action, NULL);
}

static void faults(void)
{
   static char stack[65536];
   stack_t alternate = { .ss_sp = stack, .ss_size = sizeof stack };
   volatile int zero = 0;
   int i;

   install(SIGSEGV, jump, 0);
   install(SIGFPE, jump, 0);
   for (i = 0; i < 50; i++)
      if (!sigsetjmp(out, 1))
         *(volatile int *)(intptr_t)zero = 1;
   for (i = 0; i < 20; i++)
      if (!sigsetjmp(out, 1))
         zero = 5 / zero;
   sigaltstack(&alternate, NULL);
   install(SIGILL, skip_ud2, SA_SIGINFO | SA_ONSTACK);
   for (i = 0; i < 20; i++)
      __asm__ volatile("ud2");
   install(SIGTRAP, on_trap, 0);
   for (i = 0; i < 10; i++)
      __asm__ volatile("int3");
}

static int divide(void)
{
   int wrong = 0, i;

   install(SIGFPE, repair_division, SA_SIGINFO);
   for (i = 0; i < 10; i++) {
      long high = -1, low = 1, divisor = 0;

      /* rax and rdx are written just before, and again by the division: a fault must find what they were */
      __asm__ volatile("mov $5, %%eax; mov $0, %%edx; mov $100, %%eax; idiv %%rcx"
                       : "=&a"(low), "=&d"(high), "+c"(divisor)::"cc");
      wrong += low != 14 || high != 2 || divisor != 7;
   }
   return wrong;
}

static int timers(void)
{
   struct itimerval fast = { { 0, 500 }, { 0, 500 } }, off = { { 0, 0 }, { 0, 0 } };
   int interrupted = 0, i;
   volatile long n;

   install(SIGALRM, on_alarm, 0);
   setitimer(ITIMER_REAL, &fast, NULL);
   for (i = 0; i < 50; i++) {
      struct timespec pause = { 0, 2000000 };

      if (nanosleep(&pause, NULL) < 0 && errno == EINTR)
         interrupted++;
   }
   for (n = 0; n < 1000000; n++)
      ;
   setitimer(ITIMER_REAL, &off, NULL);
   return interrupted;
}

static void *sender(void *to)
{
   int i;

   for (i = 0; i < 100; i++) {
      pthread_kill(*(pthread_t *)to, SIGUSR1);
      usleep(100);
   }
   return NULL;
}

/* Reads from a pipe that nobody writes to for a while: the call is interrupted and made again. */
static void restarted(void)
{
   pthread_t self = pthread_self(), thread;
   int ends[2];
   char byte;

   if (pipe(ends) < 0)
      exit(2);
   install(SIGUSR1, on_user, SA_RESTART);
   pthread_create(&thread, NULL, sender, &self);
   while (received < 20) {
      struct timespec pause = { 0, 300000 };

      nanosleep(&pause, NULL);
      if (write(ends[1], "x", 1) != 1 || read(ends[0], &byte, 1) != 1)
         exit(3);
   }
   pthread_join(thread, NULL);
}

static void *writes_late(void *fd)
{
   usleep(30000);
   if (write(*(int *)fd, "y", 1) != 1)
      exit(4);
   return NULL;
}

static void *kills(void *to)
{
   usleep(10000);
   pthread_kill(*(pthread_t *)to, SIGUSR1);
   return NULL;
}

static void blocked_read(void)
{
   pthread_t self = pthread_self(), a, b;
   int ends[2];
   char byte;

   if (pipe(ends) < 0)
      exit(2);
   pthread_create(&a, NULL, kills, &self);
   pthread_create(&b, NULL, writes_late, &ends[1]);
   if (read(ends[0], &byte, 1) != 1)
      exit(5);
   pthread_join(a, NULL);
   pthread_join(b, NULL);
}

int main(int argc, char **argv)
{
   int wrong, interrupted;

   (void)argv;
   faults();
   wrong = divide();
   interrupted = timers();
   restarted();
   blocked_read();
   printf("jumps %d skipped %d traps %d repaired %d wrong %d interrupted %d alarms %d received %d\n", jumps, skipped,
          traps, repaired, wrong, interrupted > 0, alarms > 0, received >= 20);
   fflush(stdout);
   if (argc > 1)
      abort();
   return 0;
}
