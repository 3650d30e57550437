/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See user.h. Runs under the big lock. */
#include "user.h"
#include "process.h"

static const UInt nobody_in_particular = ~0u;

/* The user that files are opened as when the call was made. */
static UInt wanted(UInt number, const UWord *args)
{
   switch (number) {
   case __NR_setuid:
   case __NR_setfsuid:
      return (UInt)args[0];
   case __NR_setreuid:
   case __NR_setresuid:
      return (UInt)args[1];
   default:
      return nobody_in_particular;
   }
}

static Bool changes_user(UInt number)
{
   return number == __NR_setuid || number == __NR_setfsuid || number == __NR_setreuid || number == __NR_setresuid;
}

void user_changing(UInt number, const UWord *args)
{
   UInt user = wanted(number, args);

   if (user != nobody_in_particular)
      process_give(user);
}

/* Who it is for files: setfsuid answers with it, and refuses what is no user. */
void user_changed(UInt number)
{
   if (changes_user(number))
      process_give((UInt)vg_call(__NR_setfsuid, nobody_in_particular, 0, 0, 0));
}
