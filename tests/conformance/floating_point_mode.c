/* SPDX-License-Identifier: MIT */
/* A thread begins with its creator's rounding mode and MXCSR, and changes only its own. */
#include "promise.h"

#include <fenv.h>

static volatile double one = 1, three = 3;

static void *look(void *unused)
{
	PROMISE(fegetround() == FE_UPWARD && one / three > 0x1.5555555555555p-2);
	PROMISE(fesetround(FE_TOWARDZERO) == 0 && one / three == 0x1.5555555555555p-2);
	return unused;
}

int main(void)
{
	PROMISE(fesetround(FE_UPWARD) == 0);
	in_thread(look, NULL);
	PROMISE(fegetround() == FE_UPWARD && one / three > 0x1.5555555555555p-2);
	return 0;
}
