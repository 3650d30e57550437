/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The program's environment as it was before Valgrind changed it: without Valgrind's library in LD_PRELOAD and
 * without VALGRIND_LIB. That library only serves tools that replace functions; not loading it also saves time.
 * And the program's argv[0] as whoever executed it chose it.
 */
#ifndef PTSOFT_CLIENT_ENV_H
#define PTSOFT_CLIENT_ENV_H

#include "vg_core.h"

/* Variables in which argv[0], the descriptors of the spool folder, of the state file and of an executed file without a
   name, the limits of descriptors and the signals that are held come along. */
#define CLIENT_ENV_NAME  "PTSOFT_ARGV0"
#define CLIENT_ENV_SPOOL "PTSOFT_SPOOL"
#define CLIENT_ENV_STATE "PTSOFT_STATE"
#define CLIENT_ENV_FILE  "PTSOFT_FILE"
#define CLIENT_ENV_LIMITS "PTSOFT_LIMITS"
#define CLIENT_ENV_HELD "PTSOFT_HELD"

/* Clean the environment on the program's first stack; `sp` points to argc, nothing has run yet. */
void client_env_clean(Addr sp);

#endif
