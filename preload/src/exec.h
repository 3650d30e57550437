/* SPDX-License-Identifier: MIT */
#ifndef PTW_EXEC_H
#define PTW_EXEC_H

/* In the main process: what another thread asked for. Does not return. Signal-safe. */
void ptw_exec_serve(void) __attribute__((visibility("hidden")));

#endif
