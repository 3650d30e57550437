/* SPDX-License-Identifier: MIT */
/*
 * Tags: moments of the program's own, with their call stacks, in an event vector of the process.
 *
 * The vector is made with the process's lists and handed over in the same handshake. Logging a tag is signal-safe,
 * leaves errno alone, takes no lock and allocates nothing; a program that tags nothing has a mapping more, and that is
 * all. The vector belongs to this file for the life of the process.
 */
#ifndef PTW_TAG_H
#define PTW_TAG_H

#include "sys.h"
#include "vector.h"

enum { PTW_TAG_LISTS = 128 }; /* of 1 MiB */

/* Make the process's vector, in a fork child one of its own. Its descriptor, for the handshake, which the caller
 * closes; negative errno: there are no tags. */
PTW_HIDDEN int ptw_tags_begin(void);

/* Where the page lies that says whose events are whose: process mode must not share it. 0: there is none. */
PTW_HIDDEN uint64_t ptw_tags_own(void);

/* In the process of a new thread (process mode): what fork children do not inherit. */
PTW_HIDDEN void ptw_tags_resume(void);

/* The thread logs no more. */
PTW_HIDDEN void ptw_tags_thread_end(void);

/* This thread's end of it, which probes use, too; it has no vector before its first event. Read only by who may log. */
extern PTW_HIDDEN __thread struct ptv_producer ptw_tag_producer __attribute__((tls_model("initial-exec")));

/* The same, ready to log; NULL: nothing is logged, because the process is not traced. */
PTW_HIDDEN struct ptv_producer *ptw_tag_ready(void);

/* What <ptweave/tag.h> calls. */
PTW_EXPORT void ptweave_tag_record(const char *text, unsigned long length, unsigned count, const char *const *keys,
				   const char *const *values);

#endif
