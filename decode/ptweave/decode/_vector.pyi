# SPDX-License-Identifier: MIT
"""Types of the extension built by decode/build_vector.py; decode/src/vector_reader.h documents it."""

from typing import Any

ffi: Any
lib: Any
