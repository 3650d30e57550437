/* SPDX-License-Identifier: MIT */
/*
 * Which OpenMP a caller has. There may be several in a program: packages of Python's bring one along each, with threads of
 * its own. A call goes where it would go without us: to the first among the libraries that all see, or else to the one that
 * the caller's own library was linked with.
 */
#ifndef PTW_OPENMP_REAL_H
#define PTW_OPENMP_REAL_H

#include "openmp_api.h"
#include "sys.h"

#include <stdint.h>

/* The functions for code at `pc`; those that its OpenMP lacks are NULL, as they would be without us. Where they are not
 * known yet this takes the loader's lock. Thread-safe. */
PTW_HIDDEN const struct ptw_openmp *ptw_openmp_for(uint64_t pc);

/* The same are known here for code at `pc`, without asking the loader: for a thread that is to run it, which may be a
 * process of its own, while the loader's lock is held by who waits for it. */
PTW_HIDDEN void ptw_openmp_learn(uint64_t pc, const struct ptw_openmp *functions);

#endif
