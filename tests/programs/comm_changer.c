// SPDX-License-Identifier: MIT
/* Changes its own comm before each of its calls: comm_changer TURNS. As "one" it calls getpgrp, as "two" getppid. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	for (long turns = argc > 1 ? atol(argv[1]) : 0; turns > 0; turns--) {
		prctl(PR_SET_NAME, "one");
		syscall(SYS_getpgrp);
		prctl(PR_SET_NAME, "two");
		syscall(SYS_getppid);
	}
	return 0;
}
