/* SPDX-License-Identifier: MIT */
/*
 * Can this program's threads be processes, and will it have any? Looked at once, before main(), in what the loader has
 * mapped by then: a program that nothing in it could make a thread of is left alone, and costs nothing; one that is
 * known not to work as processes keeps its threads, and that is said.
 *
 * Right at any time, also in the first call of an allocator while libraries are initialised. Thread-safe.
 */
#ifndef PTW_FITNESS_H
#define PTW_FITNESS_H

#include "sys.h"

#include <link.h>
#include <stdbool.h>

/* Is this a program whose threads are to be processes? */
PTW_HIDDEN bool ptw_fit(void);

/* A thread is made although nothing could: a library that came later does it. It stays a thread, and that is said. */
PTW_HIDDEN void ptw_fit_surprise(const void *code);

/* A library was loaded where threads are processes already: one that cannot be carried is told. */
PTW_HIDDEN void ptw_fit_late(const struct link_map *map);

/* Is a library's file that name, and ".so" behind it, or a "-" and a digest, as Python's packages call what they bring along? */
PTW_HIDDEN bool ptw_is_called(const char *path, const char *name);

#endif
