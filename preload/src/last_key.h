/* SPDX-License-Identifier: MIT */
/* Thread-specific data whose destructor is called after all others. Called once, while there is one thread. */
#ifndef PTW_LAST_KEY_H
#define PTW_LAST_KEY_H

#include "sys.h"

#include <pthread.h>
#include <stdbool.h>

enum { PTW_KEYS = 1024 }; /* PTHREAD_KEYS_MAX */

/* Make a key above all that the program will have; false where none is free. */
PTW_HIDDEN bool ptw_last_key(pthread_key_t *key, void (*destructor)(void *));

#endif
