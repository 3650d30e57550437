/* SPDX-License-Identifier: MIT */
/* ptlab: also static. ROUNDS of jumps. */
#include "jumps.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	printf("%u\n", jumps(argc > 1 ? atol(argv[1]) : 1000));
	return 0;
}
