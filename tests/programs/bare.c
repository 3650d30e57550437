/* SPDX-License-Identifier: MIT */
/*
 * A program without a library, at fixed addresses (-nostdlib -static -no-pie), that runs every kind of branch:
 * indirect calls, a switch table, string instructions, recursion, setjmp and longjmp of its own, a SIGSEGV handler
 * that repairs and returns, fork and exec (of itself). It runs the same instructions wherever it runs.
 */
typedef unsigned long u64;

enum { SYS_WRITE = 1, SYS_MMAP = 9, SYS_MPROTECT = 10, SYS_SIGACTION = 13, SYS_GETPID = 39, SYS_FORK = 57,
       SYS_EXECVE = 59, SYS_WAIT4 = 61, SYS_EXIT_GROUP = 231 };

static inline long call6(long number, long a, long b, long c, long d, long e, long f)
{
   register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
   long result;

   __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                    : "rcx", "r11", "memory");
   return result;
}

static inline long call3(long number, long a, long b, long c)
{
   return call6(number, a, b, c, 0, 0, 0);
}

/* gcc may call these */
void *memset(void *to, int value, u64 size)
{
   void *at = to;

   __asm__ volatile("rep stosb" : "+D"(at), "+c"(size) : "a"(value) : "memory");
   return to;
}

static volatile u64 sink;
static char from[4096], to[4096];

__attribute__((noinline)) static int add1(int x) { return x + 1; }
__attribute__((noinline)) static int times3(int x) { return x * 3; }
__attribute__((noinline)) static int flip(int x) { return x ^ 0x55; }

static int (*volatile functions[3])(int) = { add1, times3, flip };

__attribute__((noinline)) static int table(int x)
{
   switch (x & 15) {
   case 0: return add1(x);
   case 1: return x * 7;
   case 2: return times3(x);
   case 3: return x << 3;
   case 4: return flip(x);
   case 5: return x - 1;
   case 6: return x / 3;
   case 7: return ~x;
   case 8: sink++; return 1;
   case 9: return 77 + add1(x);
   case 10: return x % 9;
   case 11: return 5;
   default: return x;
   }
}

__attribute__((noinline)) static int fibonacci(int n)
{
   return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

/* deeper than the return stack */
__attribute__((noinline)) static int deep(int n)
{
   return n == 0 ? (int)sink : deep(n - 1) + 1;
}

static void strings(u64 count)
{
   void *d = to, *s = from;

   __asm__ volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(count)::"memory");
   d = from, count = 100;
   __asm__ volatile("rep stosq" : "+D"(d), "+c"(count) : "a"(0x41) : "memory");
   d = from, count = 4096;
   __asm__ volatile("repe scasb" : "+D"(d), "+c"(count) : "a"(0x41) : "memory", "cc");
   s = from, d = to, count = 64;
   __asm__ volatile("repe cmpsb" : "+D"(d), "+S"(s), "+c"(count)::"memory", "cc");
   count = 0;
   __asm__ volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(count)::"memory");
   s = from, d = to;
   __asm__ volatile("movsb; lodsb; stosb" : "+D"(d), "+S"(s)::"rax", "memory");
}

static void odd_jumps(u64 count)
{
   __asm__ volatile("1: loop 1b; jrcxz 2f; nop; 2: lock incq %1" : "+c"(count), "+m"(sink)::"memory", "cc");
   __asm__ volatile("call 1f; 1: pop %%rax" ::: "rax", "memory");
   __asm__ volatile("lea 1f(%%rip), %%rax; push %%rax; ret; nop; 1: nop" ::: "rax", "memory");
   __asm__ volatile("xor %%eax, %%eax; test %%eax, %%eax; je 1f; nop; 1: jne 2f; nop; 2: stc; jc 3f; nop; 3: jc 4f; "
                    "4: nop" ::: "rax", "cc");
   __asm__ volatile("lock cmpxchgq %1, %0" ::"m"(sink), "r"(3UL) : "rax", "memory", "cc");
   __asm__ volatile("mov $200, %%ecx; 1: dec %%ecx; jnz 1b" ::: "rcx", "cc");
   __asm__ volatile("jmp 1f; nop; 1: jmp 2f; 2: nop");
}

/* setjmp: rbx, rbp, r12 to r15, rsp, rip */
__attribute__((naked, noinline, returns_twice)) static int set_jump(u64 *buffer)
{
   (void)buffer;
   __asm__("mov %rbx, (%rdi); mov %rbp, 8(%rdi); mov %r12, 16(%rdi); mov %r13, 24(%rdi); mov %r14, 32(%rdi);"
           "mov %r15, 40(%rdi); lea 8(%rsp), %rax; mov %rax, 48(%rdi); mov (%rsp), %rax; mov %rax, 56(%rdi);"
           "xor %eax, %eax; ret");
}

__attribute__((naked, noinline)) static void long_jump(u64 *buffer, int value)
{
   (void)buffer;
   (void)value;
   __asm__("mov %esi, %eax; mov (%rdi), %rbx; mov 8(%rdi), %rbp; mov 16(%rdi), %r12; mov 24(%rdi), %r13;"
           "mov 32(%rdi), %r14; mov 40(%rdi), %r15; mov 48(%rdi), %rsp; jmp *56(%rdi)");
}

static u64 jump_buffer[8];

__attribute__((noinline)) static void jump_out(int depth)
{
   if (depth == 0)
      long_jump(jump_buffer, 7);
   else
      jump_out(depth - 1);
   sink++;
}

static char *protected_page;
static volatile u64 faults;

static void on_fault(int signal, void *info, void *context)
{
   (void)signal;
   (void)info;
   (void)context;
   faults++;
   call3(SYS_MPROTECT, (long)protected_page, 4096, 3);
}

__attribute__((naked)) static void restorer(void)
{
   __asm__("mov $15, %eax; syscall");
}

static void fault_and_repair(void)
{
   struct { void (*handler)(int, void *, void *); u64 flags; void (*restorer)(void); u64 mask; } action = {
      on_fault, 4 /* SIGINFO */ | 0x04000000 /* RESTORER */, restorer, 0 };
   void *d;
   u64 count;

   protected_page = (char *)call6(SYS_MMAP, 0, 8192, 3, 0x22, -1, 0);
   call6(SYS_SIGACTION, 11, (long)&action, 0, 8, 0, 0);
   for (int i = 0; i < 5; i++) {
      call3(SYS_MPROTECT, (long)protected_page, 4096, 0);
      protected_page[i * 100] = (char)i;   /* a write faults */
      call3(SYS_MPROTECT, (long)protected_page, 4096, 0);
      sink += (u64)protected_page[i * 100]; /* a read faults */
      call3(SYS_MPROTECT, (long)protected_page, 4096, 0);
      d = protected_page + 4096 + 40, count = 100; /* a string store faults half way */
      __asm__ volatile("std; rep stosb; cld" : "+D"(d), "+c"(count) : "a"(1) : "memory", "cc");
   }
}

static void work(void)
{
   volatile long sum = 0;

   for (int i = 0; i < 60; i++) {
      sum += functions[i % 3](i);
      sum += table(i);
   }
   sum += fibonacci(8) + deep(100);
   strings(300);
   odd_jumps(20);
   if (set_jump(jump_buffer) == 0)
      jump_out(5);
   sink += (u64)sum;
}

/* argv[1] present: this is the image that was exec'd. argv[2]: do not fork and exec. */
__attribute__((noreturn, used)) void run(long argc, char **argv)
{
   static char second[] = "second";
   char *next[] = { argv[0], second, 0 };

   work();
   fault_and_repair();
   call3(SYS_WRITE, 1, (long)"hi\n", 3);
   for (int i = 0; i < 10; i++)
      sink += (u64)(call3(SYS_GETPID, 0, 0, 0) & 1);
   if (argc == 1) {
      if (call3(SYS_FORK, 0, 0, 0) == 0) {
         sink += (u64)fibonacci(5);
         call3(SYS_EXIT_GROUP, 3, 0, 0);
      }
      call6(SYS_WAIT4, -1, 0, 0, 0, 0, 0);
      call3(SYS_EXECVE, (long)argv[0], (long)next, 0);
   }
   call3(SYS_EXIT_GROUP, faults == 15 ? 0 : 1, 0, 0);
   for (;;)
      ;
}

__attribute__((naked, noreturn)) void _start(void)
{
   __asm__("mov (%rsp), %rdi; lea 8(%rsp), %rsi; and $-16, %rsp; call run; hlt");
}
