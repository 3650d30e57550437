/* SPDX-License-Identifier: MIT */
/* Processes made in every way: fork, nested, vfork, posix_spawn, system, and clone that shares descriptors or the
   directory but not memory. Prints a line for each; exits 0 when all came back as they should. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static long work(long n)
{
   long sum = 0, i;

   for (i = 0; i < n; i++)
      sum += i % 3 ? i : -i * 2;
   return sum;
}

static int wait_for(pid_t pid)
{
   int status;

   return waitpid(pid, &status, __WALL) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int forks(void)
{
   pid_t child = fork();

   if (child == 0) {
      pid_t grandchild = fork();

      if (grandchild == 0)
         _exit((int)(work(500) & 1) + 10);
      _exit(wait_for(grandchild) >= 10 ? 5 : 6);
   }
   return wait_for(child) == 5;
}

static int clones(unsigned long flags)
{
   volatile long *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
   long child = syscall(SYS_clone, flags, 0, 0, 0, 0);

   if (child == 0) {
      *shared = work(2000);
      _exit(7);
   }
   return child > 0 && wait_for((pid_t)child) == 7 && *shared == work(2000);
}

static int executes(void)
{
   char *const arguments[] = { (char *)"echo", (char *)"spawned", NULL };
   pid_t child;
   int good;

   if (posix_spawn(&child, "/bin/echo", NULL, NULL, arguments, environ) != 0)
      return 0;
   good = wait_for(child) == 0;
   child = vfork();
   if (child == 0) {
      execl("/bin/echo", "echo", "vforked", (char *)NULL);
      _exit(9);
   }
   good = good && wait_for(child) == 0;
   child = fork();
   if (child == 0) {
      execl("/does/not/exist", "x", (char *)NULL);
      _exit(11); /* an exec that fails, and goes on */
   }
   good = good && wait_for(child) == 11;
   return good && system("exit 3") == 3 << 8;
}

/* with an argument: also ask for a clone that the engine refuses (it shares memory, but is no thread) */
int main(int argc, char **argv)
{
   int good;

   setvbuf(stdout, NULL, _IONBF, 0);
   good = forks();
   printf("forks %d\n", good);
   good = clones(CLONE_FS | CLONE_FILES | SIGCHLD) && clones(CLONE_FILES | SIGCHLD) && clones(CLONE_FS | CLONE_FILES);
   printf("clones %d\n", good);
   (void)argv;
   if (argc > 1)
      printf("refused %d\n", syscall(SYS_clone, CLONE_VM | SIGCHLD, 0, 0, 0, 0) < 0);
   good = executes();
   printf("executes %d\n", good);
   return !good;
}
