/* SPDX-License-Identifier: MIT */
/*
 * Process mode: a system call that the program makes by itself, without a function of the C library that we stand in
 * front of: what it is given is opened, what names the program names all of it, and what cannot be carried is told.
 */
#ifndef PTW_RAW_CALL_H
#define PTW_RAW_CALL_H

#include "touch.h"

enum { PTW_CALL_ARGUMENTS = 6 };

/* Make it; the result, or negative errno. The arguments may be changed. Signal-safe, but for calls that fork. */
PTW_HIDDEN long ptw_raw_call(long number, long *argument, const struct ptw_frame *caller);

#endif
