# SPDX-License-Identifier: MIT
"""The C extension built from merge/src (cffi, API mode). What `lib` holds is declared in merge_api.h."""

from typing import Any

ffi: Any  # a cffi.FFI: its own stubs do not know numpy arrays as buffers
lib: Any
