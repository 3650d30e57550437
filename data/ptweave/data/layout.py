# SPDX-License-Identifier: MIT
"""Where libtthread puts memory in process mode (preload/src/layout.h; a test keeps the two equal)."""

from __future__ import annotations

PAGE = 4096
REGION = 0x10000000000 + (64 << 30)
SLOTS = 1024
STACK_AREA = 16 << 20
HEAP = REGION + SLOTS * STACK_AREA
"""Stacks lie below it, heap and private mappings above."""
REGION_END = REGION + (896 << 30)
FILES = 0x30000000000
FILES_END = FILES + (256 << 30)
UNIT = 64 << 10
"""The heap is given out in units of this size."""
