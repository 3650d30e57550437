# SPDX-License-Identifier: MIT
"""C++ and Rust symbol names as their programmers wrote them, through libiberty, which knows the manglings.

C++: Itanium ABI. Rust: the legacy scheme (its hash is left out) and v0 (RFC 2603). What compilers append to a name
stays recognisable: `_Z3foov.cold` is `foo() [clone .cold]`, `main.part.0` stays as it is; only LLVM's numbers of
compilation units go.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ptweave.decode._demangle import ffi, lib

MAX_NAME = 4096
"""Longer names are kept as they are."""

MAX_TEXT = 16384
"""A name that stands for more is kept as it is: a mangled name can stand for a text exponentially longer."""

PLT = "@plt"

RUST_HASH = re.compile(r"17h[0-9a-f]{16}E(?=\.|\Z)")
LLVM_UNIT = re.compile(r"\.llvm\.[0-9A-F]+")


@lru_cache(maxsize=1 << 16)
def demangle(name: str) -> str:
    """The demangled name, or the name itself when it is not mangled or cannot be demangled.

    A symbol's version (`@GLIBC_2.2.5`, `@@GLIBCXX_3.4`) is left out; `@plt` stays.
    """
    plain, at, version = name.partition("@")
    if not plain:
        return name
    suffix = PLT if at + version == PLT else ""
    if not plain.startswith(("_Z", "_R")) or len(plain) > MAX_NAME or not plain.isascii():
        return plain + suffix
    core, clone = _rust_clone(plain)
    text = ffi.new("char[]", MAX_TEXT)
    size = lib.ptd_demangle(core.encode("ascii"), text, MAX_TEXT)
    if size < 0:
        return plain + suffix
    return bytes(ffi.buffer(text, size)).decode("utf-8", "replace") + clone + suffix


def _rust_clone(name: str) -> tuple[str, str]:
    """A Rust name without what LLVM appended, and that in words (C++'s are left to libiberty, which says the same)."""
    at = name.find(".") if name.startswith("_R") else -1
    if name.startswith("_ZN"):
        found = RUST_HASH.search(name)
        at = found.end() if found else -1
    if at < 0 or at == len(name):
        return name, ""
    rest = LLVM_UNIT.sub("", name[at:])  # says which compilation unit it was in
    return name[:at], f" [clone {rest}]" if rest else ""
