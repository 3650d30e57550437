/* SPDX-License-Identifier: MIT */
/*
 * Instructions whose memory accesses fault, with a handler that opens the page and returns: they must do what they
 * would have done. Copies and stores of strings in every direction and size, pushes, calls and returns on a stack
 * that is closed. Prints the number of wrong results.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SPAN = 1 << 20, PAGE = 4096 };

static volatile long faults;

static void open_page(int signal, siginfo_t *info, void *context)
{
   (void)signal;
   (void)context;
   faults++;
   mprotect((void *)((uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE);
}

static int copies(char *pattern, char *memory)
{
   static const size_t sizes[] = { 300, 4000, 9000, 40000 };
   int bad = 0;

   for (unsigned k = 0; k < sizeof sizes / sizeof *sizes; k++)
      for (int offset = 0; offset < 70; offset += 13)
         for (int move = 0; move < 3; move++) {
            size_t size = sizes[k], from = (size_t)offset + (move == 1 ? 3000 : 64);

            mprotect(memory, 2 * SPAN, PROT_READ | PROT_WRITE);
            memset(memory, 0, 2 * SPAN);
            if (move)
               memcpy(memory + from, pattern, size);
            mprotect(memory, 2 * SPAN, PROT_NONE);
            if (move == 0)
               memcpy(memory + offset, pattern, size);
            else
               memmove(memory + offset, memory + from, size);
            bad += memcmp(memory + offset, pattern, size) != 0;
         }
   return bad;
}

static int strings(char *pattern, char *memory)
{
   int bad = 0;

   for (int offset = 0; offset < 64; offset += 7) {
      void *to = memory + offset, *from = pattern;
      size_t count = 3 * PAGE / 8, i;

      mprotect(memory, 4 * PAGE, PROT_NONE);
      __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(count)::"memory");
      bad += memcmp(memory + offset, pattern, 3 * PAGE) != 0;
      to = memory + offset, count = 2 * PAGE;
      mprotect(memory, 4 * PAGE, PROT_NONE);
      __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(0x5a) : "memory");
      for (i = 0; i < 2 * PAGE; i++)
         bad += memory[(size_t)offset + i] != 0x5a;
      bad += memory[(size_t)offset + 2 * PAGE] != pattern[2 * PAGE];
      to = memory + offset, count = 4 * PAGE;
      mprotect(memory, 4 * PAGE, PROT_NONE);
      __asm__ volatile("repe scasb" : "+D"(to), "+c"(count) : "a"(0x5a) : "memory", "cc");
      bad += to != memory + offset + 2 * PAGE + 1;
      from = memory + offset, to = pattern, count = 4 * PAGE;
      memcpy(memory + offset, pattern, 3 * PAGE);
      memory[(size_t)offset + 3 * PAGE] = (char)~pattern[3 * PAGE];
      mprotect(memory, 4 * PAGE, PROT_NONE);
      __asm__ volatile("repe cmpsb" : "+D"(to), "+S"(from), "+c"(count)::"memory", "cc");
      bad += count != PAGE - 1;
   }
   return bad;
}

/* Runs on a stack of its own whose pages are closed again and again; signals have an alternate one. */
static int pushes(char *stack)
{
   static char alternate[65536];
   stack_t signals = { .ss_sp = alternate, .ss_size = sizeof alternate };
   uint64_t wrong = 0;
   char *top = stack + 8 * PAGE;

   sigaltstack(&signals, NULL);
   for (int i = 0; i < 20; i++) {
      uint64_t bad;

      mprotect(stack, 8 * PAGE, PROT_NONE);
      __asm__ volatile(
         "mov %%rsp, %%r12; mov %1, %%rsp; mov %1, %%r13; xor %%ebx, %%ebx; mov $77, %%r14\n"
         "push %%r14; push $5; pushf; call 1f; jmp 2f\n" /* all on the first page: the first one faults */
         "1: sub $0x1000, %%rsp; push %%r14; call 3f; pop %%rax; add $0x1000, %%rsp; ret\n"
         "3: ret\n"
         "2: popf; pop %%rax; cmp $5, %%rax; setne %%bl\n"
         "pop %%rax; cmp $77, %%rax; setne %%bh\n"
         "cmp %%rsp, %%r13; setne %%al; movzbl %%al, %%eax; add %%rax, %%rbx\n"
         "lea -64(%%r13), %%rdi; movq $1, (%%rdi); mov %%r12, %%rsp"
         : "=&b"(bad) : "r"(top) : "rax", "rdi", "r12", "r13", "r14", "memory", "cc");
      wrong += bad;
   }
   return (int)wrong;
}

int main(void)
{
   struct sigaction action = { .sa_sigaction = open_page, .sa_flags = SA_SIGINFO | SA_ONSTACK };
   char *pattern = malloc(SPAN);
   char *memory = mmap(NULL, 2 * SPAN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
   int bad_copies, bad_strings, bad_pushes;

   sigaction(SIGSEGV, &action, NULL);
   for (size_t i = 0; i < SPAN; i++)
      pattern[i] = (char)(i * 7 + (i >> 8));
   bad_pushes = pushes(memory);
   bad_copies = copies(pattern, memory);
   bad_strings = strings(pattern, memory);
   printf("copies %d strings %d pushes %d faults %d\n", bad_copies, bad_strings, bad_pushes, faults > 100);
   return bad_copies + bad_strings + bad_pushes != 0;
}
