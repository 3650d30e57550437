/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See client_env.h. The stack's layout is that of the System V ABI: argc, argv, 0, envp, 0, auxv. */
#include "client_env.h"

static const HChar preload[] = "LD_PRELOAD=";
static const HChar library[] = "VALGRIND_LIB=";
static const HChar own_name[] = CLIENT_ENV_NAME "=";
static const HChar spool[] = CLIENT_ENV_SPOOL "=";
static const HChar state[] = CLIENT_ENV_STATE "=";
static const HChar file[] = CLIENT_ENV_FILE "=";
static const HChar limits[] = CLIENT_ENV_LIMITS "=";
static const HChar held[] = CLIENT_ENV_HELD "=";
static const HChar ours[] = "/vgpreload_core-";

static Bool begins_with(const HChar *text, const HChar *prefix)
{
   return VG_(strncmp)(text, prefix, VG_(strlen)(prefix)) == 0;
}

/* The first entry of LD_PRELOAD is Valgrind's. Take it out; True: nothing is left. */
static Bool clean_preload(HChar *variable)
{
   HChar *value = variable + sizeof preload - 1, *rest = VG_(strchr)(value, ':');
   HChar *found = VG_(strstr)(value, ours);

   if (found == NULL || (rest != NULL && found > rest))
      return False;
   if (rest == NULL)
      return True;
   VG_(memmove)(value, rest + 1, VG_(strlen)(rest + 1) + 1);
   return False;
}

/* Address behind the auxiliary vector, which follows the environment. */
static UWord *end_of_auxv(HChar **variable)
{
   UWord *auxv;

   while (*variable != NULL)
      variable++;
   for (auxv = (UWord *)(variable + 1); auxv[0] != 0; auxv += 2)
      ;
   return auxv + 2;
}

void client_env_clean(Addr sp)
{
   UWord argc = *(const UWord *)sp;
   HChar **argv = (HChar **)sp + 1, **variable = argv + argc + 1;

   while (*variable != NULL) {
      Bool unwanted = begins_with(*variable, library) || begins_with(*variable, spool)
                      || begins_with(*variable, limits) || begins_with(*variable, file)
                      || begins_with(*variable, held) || begins_with(*variable, state)
                      || (begins_with(*variable, preload) && clean_preload(*variable));

      if (begins_with(*variable, own_name)) {
         argv[0] = *variable + sizeof own_name - 1;
         unwanted = True;
      }
      if (unwanted) /* everything behind it moves up, the auxiliary vector too: it must follow the last variable */
         VG_(memmove)(variable, variable + 1, (SizeT)((UChar *)end_of_auxv(variable) - (UChar *)(variable + 1)));
      else
         variable++;
   }
}
