// SPDX-License-Identifier: MIT
/* Calls that never begin, that are 32-bit, that have no number. Prints nothing. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void)
{
	/* fail unlink with EPERM, allow the rest */
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unlink, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = 4, .filter = code};
	char path[] = "refused by seccomp";	/* on the stack: in memory, though the kernel will not read it */
	long result;

	/* getpid as a 32-bit call, twice */
	for (int i = 0; i < 2; i++)
		__asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory", "r8", "r9", "r10", "r11");
	syscall(9999, 1, 2, 3, 4, 5, 6);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return 2;
	return unlink(path) == -1 && errno == EPERM ? 0 : 3;
}
