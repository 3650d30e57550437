# SPDX-License-Identifier: MIT
"""C++ and Rust symbol names as their programmers wrote them, through the libraries that know the manglings."""

from __future__ import annotations

import re
from functools import lru_cache

import cxxfilt
from rust_demangler import demangle as demangle_rust
from rust_demangler.rust import TypeNotFoundError
from rust_demangler.rust_legacy import UnableToLegacyDemangle
from rust_demangler.rust_v0 import UnableTov0Demangle

MAX_NAME = 2048
"""Longer names are kept as they are: a mangled name can stand for a text exponentially longer."""

MAX_BACK_REFERENCES = 12
"""In Rust's v0 scheme each may double the text."""

RUST_HASH = re.compile(r"17h[0-9a-f]{16}E(?:\.llvm\.[0-9]+)?\Z")


@lru_cache(maxsize=1 << 16)
def demangle(name: str) -> str:
    """The demangled name, or the name itself when it is not mangled or cannot be demangled."""
    if len(name) > MAX_NAME:
        return name
    plain, suffix = (name[:-4], "@plt") if name.endswith("@plt") else (name, "")
    if plain.startswith("_R"):
        return _rust(plain) + suffix
    if plain.startswith("_ZN") and RUST_HASH.search(plain):
        found = _rust(plain)
        return (found.rpartition("::h")[0] or found) + suffix
    if plain.startswith(("_Z", "__Z")):
        return _cxx(plain) + suffix
    return name


def _cxx(name: str) -> str:
    try:
        return str(cxxfilt.demangle(name))
    except (cxxfilt.Error, UnicodeDecodeError):
        return name


def _rust(name: str) -> str:
    if name.startswith("_R") and name.count("B") > MAX_BACK_REFERENCES:
        return name
    try:
        return str(demangle_rust(name))
    except (TypeNotFoundError, UnableToLegacyDemangle, UnableTov0Demangle, ValueError, LookupError, TypeError,
            AttributeError, RecursionError, OverflowError):
        return name
