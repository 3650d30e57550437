/* SPDX-License-Identifier: MIT */
#ifndef PTW_PAGES_H
#define PTW_PAGES_H

#include "slots.h"

PTW_HIDDEN void ptw_pages_start(void);
PTW_HIDDEN void ptw_pages_begin(struct ptw_slot *slot);
PTW_HIDDEN void ptw_pages_end(void);
PTW_HIDDEN void ptw_pages_boundary(void);
PTW_HIDDEN void ptw_pages_lend(struct ptw_slot *slot);
PTW_HIDDEN void ptw_pages_lent(struct ptw_slot *slot);

#endif
