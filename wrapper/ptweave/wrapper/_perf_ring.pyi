# SPDX-License-Identifier: MIT
"""Types of the extension built from wrapper/src/perf_ring.c."""

from typing import Any

ffi: Any
lib: Any
