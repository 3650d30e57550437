# SPDX-License-Identifier: MIT
"""Types of the extension built by decode/build_evl.py; decode/src/evl.h documents it."""

from typing import Any

ffi: Any
lib: Any
