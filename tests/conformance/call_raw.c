/* SPDX-License-Identifier: MIT */
/* System calls made through syscall() and by an instruction in the program fill fresh pages too. */
#include "fresh.h"

static int fd;

static long by_instruction(long number, long first, long second, long third)
{
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(first), "S"(second), "d"(third)
			 : "rcx", "r11", "memory");
	return result;
}

static void body(char *memory)
{
	memory += 100;
	PROMISE(syscall(SYS_read, fd, memory, 5000) == 5000 && memory[4999] == 0);
	PROMISE(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, memory + 6000) == 0);
}

static void body_instruction(char *memory)
{
	long result = by_instruction(SYS_read, fd, (long)memory, FRESH_ROOM);
	PROMISE(result == FRESH_ROOM);
	PROMISE(by_instruction(SYS_uname, (long)memory, 0, 0) == 0 && strcmp(memory, "Linux") == 0);
}

int main(void)
{
	fd = open("/dev/zero", O_RDONLY);
	with_fresh_memory(body);
	with_fresh_memory(body_instruction);
	return 0;
}
