/* SPDX-License-Identifier: MIT */
/*
 * Process mode: /proc as the program means it. /proc/self is the main process for every thread, and
 * /proc/self/task/TID is the thread TID, which is a process of its own.
 *
 * Left to be the thread's own process: what describes its memory and the program that runs (maps, mem, exe, cmdline and
 * their kin) and its descriptors. That is the same in every thread, and another process's needs privileges.
 *
 * Thread-safe and signal-safe. The path's page must be open; a path that cannot be read is left to the kernel.
 */
#ifndef PTW_PROC_PATH_H
#define PTW_PROC_PATH_H

#include "slots.h"

enum { PTW_PROC_PATH = 128 }; /* longer ones are left as they are */

PTW_HIDDEN const char *ptw_proc_path_slow(const char *path, char room[PTW_PROC_PATH]);

/* Is it /proc/self itself, and is that another process? Then where it leads to: as many bytes as have room. */
PTW_HIDDEN bool ptw_proc_self(const char *path);
PTW_HIDDEN size_t ptw_proc_self_link(char *ret, size_t size);

/* `path`, or what is meant by it, in `room`. */
static inline const char *ptw_proc_path(const char *path, char room[PTW_PROC_PATH])
{
	return ptw_process_mode && path ? ptw_proc_path_slow(path, room) : path;
}

#endif
