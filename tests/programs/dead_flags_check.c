/* SPDX-License-Identifier: MIT */
/* What the engine takes an instruction to do to the flags, for each line of bytes (hex) on standard input: `EFFECT SIZE`. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "dead_flags.h"

enum { LONGEST = 15 };

static const char *const names[] = { [FLAGS_ANYTHING] = "anything", [FLAGS_KEPT] = "kept", [FLAGS_SET] = "set" };

int main(void)
{
	char line[64];

	while (fgets(line, sizeof line, stdin)) {
		uint8_t bytes[LONGEST];
		unsigned size = 0;

		memset(bytes, 0xcc, sizeof bytes);
		for (unsigned i = 0; i < LONGEST && sscanf(line + 2 * i, "%2" SCNx8, &bytes[i]) == 1; i++)
			;
		enum flag_effect effect = flag_effect_of(bytes, &size);
		printf("%s %u\n", names[effect], size);
	}
	return 0;
}
