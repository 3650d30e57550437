/* SPDX-License-Identifier: MIT */
/* What libipt is told of the processor and the packets. */
#ifndef PTD_CONFIG_H
#define PTD_CONFIG_H

#include "api.h"

#include <intel-pt.h>

/* libipt's configuration for so many bytes of packets, which it borrows. Returns 0 or -EINVAL. */
int ptd_config_init(struct pt_config *config, const struct ptd_cpu *cpu, const uint8_t *packets, uint64_t size);

#endif
