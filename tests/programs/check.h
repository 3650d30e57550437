/* SPDX-License-Identifier: MIT */
/* What the C unit tests share: a condition that must hold, or the program ends with status 1 and says which. */
#ifndef PTWEAVE_TESTS_CHECK_H
#define PTWEAVE_TESTS_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                              \
	do {                                                                          \
		if (!(condition)) {                                                   \
			fprintf(stderr, "%s:%d: %s\n", __func__, __LINE__, #condition); \
			exit(1);                                                      \
		}                                                                     \
	} while (0)

#endif
