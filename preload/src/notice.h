/* SPDX-License-Identifier: MIT */
/*
 * Notices: what libtthread met that it cannot carry, or carries less well, told to the supervisor once.
 *
 * They lie in the memfd of the event lists, behind the lists' descriptors: the supervisor finds them there also after
 * the process was killed. Before there are lists they wait; where there is no supervisor they are lines on stderr. Each
 * (kind, code address) is told once a process, and where there is none each (kind, memory, text); the supervisor tells
 * them once a run. Mirrored in
 * data/ptweave/data/lists.py and notices.py; tests keep them equal.
 *
 * Thread-safe and signal-safe: no lock, no allocation, errno is left alone. What does not fit is counted.
 */
#ifndef PTW_NOTICE_H
#define PTW_NOTICE_H

#include "lists.h"

enum ptw_notice_kind {
	PTW_NOTICE_FALLBACK = 1,  /* threads stay threads */
	PTW_NOTICE_ATOMIC = 2,    /* atomic instructions on memory that is private to a thread until it releases */
	PTW_NOTICE_FUTEX = 3,     /* a futex call that is not ours to redirect */
	PTW_NOTICE_CALL = 4,      /* a system call instruction of the program's own */
	PTW_NOTICE_CLONE = 5,     /* a thread or process made without the C library */
	PTW_NOTICE_IO_URING = 6,  /* the kernel works on memory by itself */
	PTW_NOTICE_TRACER = 7,    /* ptrace and its kin see processes where they expect threads */
	PTW_NOTICE_FAULTS = 8,    /* userfaultfd, or protections of its own */
	PTW_NOTICE_LIMIT = 9,     /* a documented limit of process mode was reached */
	PTW_NOTICE_SHARED = 10,   /* what --shared names cannot be found */
	PTW_NOTICE_PROBE = 11,    /* a probe that could not be installed, or was switched off */
	PTW_NOTICE_WATCH = 12,    /* a watchpoint that could not be set */
	PTW_NOTICE_SCOPE = 13,    /* names that a library uses are looked up in another order */
	PTW_NOTICE_KINDS,         /* one more than the last */
};

/* Tell it. `code` is what is told of: an instruction, or NULL for the process as a whole. 0; 1 when it was told before;
 * -ENOSPC when there is no room (counted). */
PTW_HIDDEN int ptw_notice(enum ptw_notice_kind kind, const void *code, const char *text);

/* The same, with the memory it is about: that is what the user can name to --shared. */
PTW_HIDDEN int ptw_notice_about(enum ptw_notice_kind kind, const void *code, const void *object, const char *text);

/* There are lists now (of a new process image, or of a fork child): what waited goes there. */
PTW_HIDDEN void ptw_notices_begin(struct ptw_lists *lists);

/* There is no supervisor: what waited is said, and so is what comes. */
PTW_HIDDEN void ptw_notices_alone(void);

#endif
