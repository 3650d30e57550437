// SPDX-License-Identifier: GPL-2.0-or-later
/* The kernel's own driver of Intel PT, as it is in Debian's kernel source package, on the processor of cpu.h. */
#include "intel/pt.c"
