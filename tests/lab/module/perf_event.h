/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Stands in for the kernel's arch/x86/events/perf_event.h, which its Intel PT driver includes. */
#include "shim.h"
