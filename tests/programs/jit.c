/* SPDX-License-Identifier: MIT */
/*
 * Code that is not what a file says. Each part runs code, changes it and runs it again, and checks what it does:
 * written into anonymous memory; changed back and forth; moved with mremap; patched into this program's own text;
 * written through one mapping of a memfd and run through another; run in a fork child, which changes it too.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

typedef int function(int);

/* mov eax, constant; add eax, edi; (a loop of `turns`) ; ret */
static size_t generate(unsigned char *at, int constant, int turns)
{
   unsigned char code[] = { 0xb8, 0, 0, 0, 0, 0xb9, 0, 0, 0, 0, 0x01, 0xf8, 0xff, 0xc9, 0x75, 0xfa, 0xc3 };

   memcpy(code + 1, &constant, 4);
   memcpy(code + 6, &turns, 4);
   memcpy(at, code, sizeof code);
   return sizeof code;
}

static int anonymous(void)
{
   unsigned char *code = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
   int wrong = 0;

   for (int i = 0; i < 100; i++) {   /* more code, next to the code before */
      size_t size = generate(code + 32 * i, i, 1 + i % 5);

      wrong += ((function *)(code + 32 * i))(3) != i + 3 * (1 + i % 5);
      memset(code + 32 * i + size, 0xcc, 32 - size);
   }
   for (int i = 0; i < 40; i++) {    /* changed, and changed back */
      generate(code + 32 * (i % 3), 1000 + i % 2, 2);
      wrong += ((function *)(code + 32 * (i % 3)))(5) != 1000 + i % 2 + 10;
      wrong += ((function *)(code + 32 * 50))(1) != 50 + 1;
   }
   code[32 * 50 + 1] = 99;           /* one byte in the middle */
   wrong += ((function *)(code + 32 * 50))(1) != 99 + 1;
   unsigned char *moved = mremap(code, 16 * PAGE, 16 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
                                 mmap(NULL, 16 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));

   wrong += moved == MAP_FAILED || ((function *)(moved + 32 * 50))(1) != 99 + 1;
   code = mmap(code, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
   generate(code, 5, 1);             /* something else where the old code was */
   wrong += ((function *)code)(1) != 6;
   munmap(code, PAGE);
   munmap(moved, 16 * PAGE);
   return wrong;
}

__attribute__((noinline, aligned(PAGE))) static int in_text(int x)
{
   __asm__ volatile("" ::: "memory");
   return x + 1;
}

/* The bytes of lea 1(%rdi), %eax or the like are replaced by mov $42, %eax; ret and put back. */
static int patched(void)
{
   static const unsigned char patch[] = { 0xb8, 42, 0, 0, 0, 0xc3 };
   unsigned char saved[sizeof patch], *at = (unsigned char *)(uintptr_t)in_text;
   void *page = (void *)((uintptr_t)at & ~(uintptr_t)(PAGE - 1));
   function *volatile call = in_text;
   int wrong = 0;

   wrong += call(1) != 2;
   for (int i = 0; i < 5; i++) {
      mprotect(page, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
      memcpy(saved, at, sizeof patch);
      memcpy(at, patch, sizeof patch);
      if (i % 2)
         mprotect(page, 2 * PAGE, PROT_READ | PROT_EXEC);
      wrong += call(1) != 42;
      mprotect(page, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
      memcpy(at, saved, sizeof patch);
      wrong += call(1) != 2;
   }
   mprotect(page, 2 * PAGE, PROT_READ | PROT_EXEC);
   return wrong;
}

static int two_views(void)
{
   int fd = memfd_create("code", 0), wrong = 0;
   unsigned char *writes, *runs;

   if (fd < 0 || ftruncate(fd, PAGE) < 0)
      return 1;
   writes = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
   runs = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
   for (int i = 0; i < 10; i++) {
      generate(writes, i, 3);
      wrong += ((function *)runs)(2) != i + 6;
   }
   munmap(writes, PAGE);
   munmap(runs, PAGE);
   close(fd);
   return wrong;
}

static unsigned char *shared_code;

static void *runs_it(void *expected)
{
   long wrong = 0;

   for (int i = 0; i < 1000; i++)
      wrong += ((function *)shared_code)(1) != (int)(intptr_t)expected;
   return (void *)wrong;
}

/* Several threads run the code, the main one changes it between their lives. */
static int in_threads(void)
{
   pthread_t threads[3];
   long wrong = 0;

   shared_code = mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
   for (int i = 0; i < 6; i++) {
      generate(shared_code, i, 1 + i);
      for (int k = 0; k < 3; k++)
         pthread_create(&threads[k], NULL, runs_it, (void *)(intptr_t)(i + 1 + i));
      for (int k = 0; k < 3; k++) {
         void *result;

         pthread_join(threads[k], &result);
         wrong += (long)result;
      }
   }
   return (int)wrong;
}

static int in_children(void)
{
   int wrong = 0, status;

   for (int i = 0; i < 3; i++) {
      pid_t child = fork();

      if (child == 0) {
         int bad = ((function *)shared_code)(1) != 5 + 6;

         generate(shared_code, 77, 1);
         bad += ((function *)shared_code)(1) != 78;
         _exit(bad);
      }
      waitpid(child, &status, 0);
      wrong += status != 0;
      wrong += ((function *)shared_code)(1) != 5 + 6;
   }
   return wrong;
}

int main(void)
{
   int a = anonymous(), b = patched(), c = two_views(), d = in_threads(), e = in_children();

   printf("anonymous %d patched %d views %d threads %d children %d\n", a, b, c, d, e);
   return a + b + c + d + e != 0;
}
