# SPDX-License-Identifier: MIT
"""Types of the extension built from wrapper/src/host.c."""

from typing import Any

ffi: Any
lib: Any
