/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The engine's instruction classes, for each line `IP BYTES` (hex) on standard input: `CLASS BRANCH TARGET`.
 * Every instruction is put at the end of its own allocation, so that a read behind it is seen by ASan.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "insn_class.h"

static const char *const names[] = {
   [INSN_OTHER] = "other", [INSN_COND_JUMP] = "cond_jump", [INSN_CALL] = "call", [INSN_IND_JUMP] = "ind_jump",
   [INSN_IND_CALL] = "ind_call", [INSN_RETURN] = "return", [INSN_FAR] = "far",
};

int main(void)
{
   char line[256], hex[128];
   uint64_t ip;

   while (fgets(line, sizeof line, stdin)) {
      if (sscanf(line, "%" SCNx64 " %127s", &ip, hex) != 2)
         return 2;
      size_t size = strlen(hex) / 2, i;
      uint8_t *bytes = malloc(size);

      for (i = 0; i < size; i++)
         sscanf(hex + 2 * i, "%2" SCNx8, &bytes[i]);
      struct insn insn = insn_classify(bytes, (unsigned)size, ip);

      printf("%s %d %" PRIx64 "\n", names[insn.class], insn.is_branch, insn.target);
      free(bytes);
   }
   return 0;
}
