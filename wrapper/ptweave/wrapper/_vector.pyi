# SPDX-License-Identifier: MIT
"""Types of the extension built by wrapper/build_vector.py; wrapper/src/vector_file.h documents it."""

from typing import Any

ffi: Any
lib: Any
