/* SPDX-License-Identifier: MIT */
/*
 * Instructions whose memory accesses fault, with a handler that opens the page and returns: they must do what they
 * would have done. Copies and stores of strings in every direction, width and size, with the registers that the
 * handler sees; loads whose value is used late; pushes, calls and returns on a stack that is closed. Prints the number
 * of wrong results.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { SPAN = 1 << 20, PAGE = 4096 };

static volatile long faults;

/* A copy whose registers the handler checks. */
static struct {
   char *to, *from;
   size_t count;
   volatile int on, bad, seen;
} watched;

static void check_registers(const siginfo_t *info, const ucontext_t *context)
{
   const greg_t *registers = context->uc_mcontext.gregs;
   size_t done = (size_t)(registers[REG_RDI] - (greg_t)watched.to);

   watched.seen++;
   watched.bad += (char *)registers[REG_RDI] != (char *)info->si_addr;
   watched.bad += (size_t)(registers[REG_RSI] - (greg_t)watched.from) != done;
   watched.bad += (size_t)registers[REG_RCX] != watched.count - done;
}

static void open_page(int signal, siginfo_t *info, void *context)
{
   (void)signal;
   faults++;
   if (watched.on)
      check_registers(info, context);
   mprotect((void *)((uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE);
}

static int copies(char *pattern, char *memory)
{
   static const size_t sizes[] = { 300, 4000, 9000, 40000, 131072, 500000 };
   int bad = 0;

   for (unsigned k = 0; k < sizeof sizes / sizeof *sizes; k++)
      for (size_t offset = 3000; offset < 3070; offset += sizes[k] > 100000 ? 65 : 13)
         for (int move = 0; move < 5; move++) {
            static const int distances[] = { 0, 3000, 64, -3000, -64 }; /* of the source from the destination */
            size_t size = sizes[k], from = offset + (size_t)distances[move];

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

enum width { BYTES = 1, WORDS = 2, LONGS = 4, QUADS = 8 };

/* One string instruction of a width and direction; returns what is left in its counter. */
static size_t copy_string(enum width width, int down, char *to, char *from, size_t count)
{
   if (down)
      __asm__ volatile("std" ::: "cc");
   switch (width) {
   case BYTES:
      __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count)::"memory");
      break;
   case WORDS:
      __asm__ volatile("rep movsw" : "+D"(to), "+S"(from), "+c"(count)::"memory");
      break;
   case LONGS:
      __asm__ volatile("rep movsl" : "+D"(to), "+S"(from), "+c"(count)::"memory");
      break;
   case QUADS:
      __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(count)::"memory");
      break;
   }
   __asm__ volatile("cld" ::: "cc");
   return count;
}

static size_t fill_string(enum width width, int down, char *to, size_t count)
{
   uint64_t value = 0x5a5a5a5a5a5a5a5a;

   if (down)
      __asm__ volatile("std" ::: "cc");
   switch (width) {
   case BYTES:
      __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(value) : "memory");
      break;
   case WORDS:
      __asm__ volatile("rep stosw" : "+D"(to), "+c"(count) : "a"(value) : "memory");
      break;
   case LONGS:
      __asm__ volatile("rep stosl" : "+D"(to), "+c"(count) : "a"(value) : "memory");
      break;
   case QUADS:
      __asm__ volatile("rep stosq" : "+D"(to), "+c"(count) : "a"(value) : "memory");
      break;
   }
   __asm__ volatile("cld" ::: "cc");
   return count;
}

/* Source and destination both closed, at every alignment to each other, elements lying across the ends of pages. */
static int directions(const char *pattern, char *memory)
{
   static const enum width widths[] = { BYTES, WORDS, LONGS, QUADS };
   enum { LENGTH = 2 * PAGE + 1024 };
   char *source = memory + 8 * PAGE;
   int bad = 0;

   for (unsigned k = 0; k < sizeof widths / sizeof *widths; k++)
      for (int down = 0; down < 2; down++)
         for (size_t to = 0; to < 9; to += 2)
            for (size_t from = 0; from < 9; from += 5) {
               enum width width = widths[k];
               size_t last = down ? LENGTH - width : 0, at;

               mprotect(memory, 16 * PAGE, PROT_READ | PROT_WRITE);
               memset(memory, 0, 4 * PAGE);
               memcpy(source + from, pattern, LENGTH);
               mprotect(memory, 16 * PAGE, PROT_NONE);
               bad += copy_string(width, down, memory + to + last, source + from + last, LENGTH / width) != 0;
               bad += memcmp(memory + to, pattern, LENGTH) != 0;
               for (at = 0; at < to; at++)
                  bad += memory[at] != 0;
               bad += memory[to + LENGTH] != 0;
               mprotect(memory, 16 * PAGE, PROT_NONE);
               bad += fill_string(width, down, memory + to + last, LENGTH / width) != 0;
               for (at = to; at < to + LENGTH; at++)
                  bad += memory[at] != 0x5a;
               bad += memory[to + LENGTH] != 0;
            }
   return bad;
}

/* At each fault of a byte-wise copy, the counter and both addresses say how far it is: nothing done twice, none lost. */
static int registers(const char *pattern, char *memory)
{
   int bad = 0;

   for (size_t offset = 0; offset < 64; offset += 9) {
      mprotect(memory, 4 * PAGE, PROT_NONE);
      watched.to = memory + offset;
      watched.from = (char *)pattern;
      watched.count = 3 * PAGE;
      watched.bad = watched.seen = 0;
      watched.on = 1;
      copy_string(BYTES, 0, memory + offset, (char *)pattern, 3 * PAGE);
      watched.on = 0;
      bad += watched.bad + (watched.seen != (offset ? 4 : 3));
   }
   return bad;
}

/* A load whose register is overwritten before memory is accessed again, with its address's register changed in
 * between: that one may not be changed yet when the load faults. Sums up products of two arrays that lie across the
 * ends of pages. */
static int loads(char *memory)
{
   enum { COUNT = 40 };
   int bad = 0;

   for (int left = 0; left < COUNT; left++)
      for (int right = 0; right < COUNT; right += 7) {
         int *a = (int *)(memory + PAGE) - left, *b = (int *)(memory + 4 * PAGE) - right;
         int64_t expected = 0, sum = 0, at = 0;

         mprotect(memory, 8 * PAGE, PROT_READ | PROT_WRITE);
         for (int k = 0; k < COUNT; k++) {
            a[k] = k * 7 + left;
            b[k] = k * k - right;
            expected += (int64_t)(a[k] - 1) * (b[k] - 3);
         }
         mprotect(memory, 8 * PAGE, PROT_NONE);
         __asm__ volatile(
            "1: movslq (%2, %1, 4), %%rax; movslq (%3, %1, 4), %%rcx; add $1, %1\n"
            "sub $1, %%rax; sub $3, %%rcx; imul %%rcx, %%rax; add %%rax, %0; cmp $40, %1; jne 1b"
            : "+r"(sum), "+r"(at) : "r"(a), "r"(b) : "rax", "rcx", "memory", "cc");
         bad += sum != expected || at != COUNT;
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
   int bad_copies, bad_strings, bad_directions, bad_registers, bad_loads, bad_pushes;

   sigaction(SIGSEGV, &action, NULL);
   for (size_t i = 0; i < SPAN; i++)
      pattern[i] = (char)(i * 7 + (i >> 8));
   bad_pushes = pushes(memory);
   bad_copies = copies(pattern, memory);
   bad_strings = strings(pattern, memory);
   bad_directions = directions(pattern, memory);
   bad_registers = registers(pattern, memory);
   bad_loads = loads(memory);
   printf("copies %d strings %d directions %d registers %d loads %d pushes %d faults %d\n", bad_copies, bad_strings,
          bad_directions, bad_registers, bad_loads, bad_pushes, faults > 100);
   return bad_copies + bad_strings + bad_directions + bad_registers + bad_loads + bad_pushes != 0;
}
