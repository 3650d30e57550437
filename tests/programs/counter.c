/* SPDX-License-Identifier: MIT */
/*
 * Counts in a shared mapping of the file argv[1], for ever: the oracle of what ran before it was killed.
 * Everything a trace is made of happens between two counts: branches, indirect calls, returns, system calls.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t *counter;

__attribute__((noinline)) static unsigned odd(unsigned x) { return x * 3 + 1; }
__attribute__((noinline)) static unsigned even(unsigned x) { return x / 2; }

static unsigned (*volatile functions[2])(unsigned) = { even, odd };

/* The instruction at `counted` runs once a count. */
__attribute__((noinline)) static void count(void)
{
   __asm__ volatile(".globl counted\ncounted: incq (%0)" ::"r"(counter) : "memory", "cc");
}

int main(int argc, char **argv)
{
   unsigned seed = 27;
   int fd = argc > 1 ? open(argv[1], O_RDWR) : -1;

   if (fd < 0)
      return 2;
   counter = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
   for (;;) {
      seed = seed == 1 ? 27 : functions[seed & 1](seed);
      if (seed % 5 == 0)
         getppid();
      count();
   }
}
