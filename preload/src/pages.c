/* SPDX-License-Identifier: MIT */
#include "pages.h"
void ptw_pages_start(void) {}
void ptw_pages_begin(struct ptw_slot *slot) { (void)slot; }
void ptw_pages_end(void) {}
void ptw_pages_lend(struct ptw_slot *slot) { (void)slot; }
void ptw_pages_lent(struct ptw_slot *slot) { (void)slot; }
void ptw_pages_boundary(void) {}
