/* SPDX-License-Identifier: MIT */
/*
 * Process mode: children are the program's: whichever thread makes one, any thread may wait for it, and the main process
 * is its parent (fork.h has how). A thread other than main asks there, by an errand; where it has to block, a watcher, a
 * thread of the main process, tells it to ask again. Children that the C library makes for system and popen, and those
 * of vfork, are the calling thread's own: it waits for them itself, and others do not see them.
 */
#ifndef PTW_CHILDREN_H
#define PTW_CHILDREN_H

#include <stdint.h>

/* In the main process: have somebody watch for what watch `index` asks. 0, or negative errno. */
long ptw_children_watch(uint32_t index) __attribute__((visibility("hidden")));

/* In a fork child: nobody watches. */
void ptw_children_forget(void) __attribute__((visibility("hidden")));

#endif
