/* SPDX-License-Identifier: MIT */
/*
 * LLVM's and Intel's OpenMP (libomp, libiomp5) tell a tool what their threads do: OpenMP 5.0, 4.5 ("OMPT Interface"). We
 * are that tool, unless the program has one. From then on their regions, barriers and tasks are logged as openmp_team.h
 * says, whichever compiler made the calls; critical sections and what else is told too late, or not at all, in
 * openmp_kmpc.c.
 *
 * A team has no memory of ours: the runtime carries a number for us, from which the names of the team's objects are made.
 * They lie where no address of a program does.
 */
#ifndef PTW_OPENMP_TOOL_H
#define PTW_OPENMP_TOOL_H

#include "openmp_real.h"

#include <stdbool.h>

enum ptw_tool_object {
	PTW_TOOL_BEGIN,
	PTW_TOOL_END,
	PTW_TOOL_ORDER,
	PTW_TOOL_TASKS,
	PTW_TOOL_TASKS_DONE,
	PTW_TOOL_REDUCED,
	PTW_TOOL_BARRIERS = 8 /* and one for each count of members */
};

/* An object of the team this thread works in; NULL: it is in none, or nobody tells. */
PTW_HIDDEN const void *ptw_tool_object(enum ptw_tool_object which);

/* Does that runtime tell us itself what its threads do? */
PTW_HIDDEN bool ptw_tool_is_told(const struct ptw_openmp *openmp);

/* Is what this code calls of the runtime told already? The runtime calls some of its functions as the program does, and what
 * it has GCC's functions end with seems to be called by us. */
PTW_HIDDEN bool ptw_tool_is_told_of(uint64_t pc);

/* The reductions that this thread is about to be in have barriers of their own, which are none: 1; it is behind them: 0. */
PTW_HIDDEN void ptw_tool_reduces(bool begins);

#endif
