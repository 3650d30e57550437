# SPDX-License-Identifier: MIT
"""Types of the extension built by decode/build_demangle.py; decode/src/demangle.h documents it."""

from typing import Any

ffi: Any
lib: Any
