/* SPDX-License-Identifier: MIT */
/* What is done when a watchpoint is hit: watch.h says what is guaranteed. */
#ifndef PTW_WATCH_HIT_H
#define PTW_WATCH_HIT_H

#include "watch.h"

/* Room for what is last seen of `count`. False: there is no memory. */
PTW_HIDDEN bool ptw_watch_hits_init(uint32_t count);

/* Where it is; what is there now is what the first hit finds changed. */
PTW_HIDDEN void ptw_watch_hits_expect(uint32_t number, const struct ptw_watched_range *range);

/* In a fork child: what was last seen is its own from here on. */
PTW_HIDDEN void ptw_watch_hits_forked(void);

/* It is nowhere any more. */
PTW_HIDDEN void ptw_watch_hits_gone(uint32_t number);

/* Where it is, as whichever process of the program found it; length 0: nowhere. */
PTW_HIDDEN struct ptw_watched_range ptw_watch_hits_at(uint32_t number);

/* SIGTRAP is ours from now on; what the program has for it is remembered. */
PTW_HIDDEN void ptw_watch_catch(void);

/* That, for process mode, where a table remembers it from then on. */
PTW_HIDDEN const struct sigaction *ptw_watch_programs(void);

#endif
