# SPDX-License-Identifier: MIT
"""What runs inside the target: libtthread.so, loaded with LD_PRELOAD (sources in preload/src)."""

from __future__ import annotations

from pathlib import Path

from ptweave.data import MachineLacks

__all__ = ["include_path", "library_path"]


def include_path() -> Path:
    """Absolute path of the folder with `ptweave/tag.h`, for the compiler's -I."""
    return Path(__file__).resolve().with_name("include")


def library_path() -> Path:
    """Absolute path of libtthread.so. Raises MachineLacks when it was not built, or cannot be preloaded from there."""
    path = Path(__file__).resolve().with_name("libtthread.so")
    if not path.exists():
        raise MachineLacks("has not been built", where=str(path), remedy="run make build, or install the package again")
    if any(letter in str(path) for letter in ": \t\n"):
        raise MachineLacks("cannot be preloaded: ld.so splits LD_PRELOAD at spaces and colons", where=str(path),
                           remedy="install ptweave in a folder without them in its name")
    return path
