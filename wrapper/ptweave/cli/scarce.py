# SPDX-License-Identifier: MIT
"""Where memory or threads run out, Python and the libraries it loads raise errors of several kinds, none of which says
what to do. Here they are told from defects, and said as one line."""

from __future__ import annotations

from ptweave.data.errors import MachineLacks

KINDS = (MemoryError, ImportError, RuntimeError)
"""Errors that may be of this sort."""

_OF_LOADING = ("failed to map segment", "cannot allocate memory", "cannot create shared object")
_NO_THREAD = "can't start new thread"


def scarcity(error: BaseException) -> MachineLacks | None:
    """What the machine lacks, if the error says that it lacks memory or threads; None for every other error."""
    said = str(error)
    if isinstance(error, RuntimeError) and said == _NO_THREAD:
        return MachineLacks("no more threads can be started",
                            remedy="raise the limits of processes and of address space (ulimit -u, ulimit -v)")
    loading = isinstance(error, ImportError) and any(words in said.lower() for words in _OF_LOADING)
    if isinstance(error, MemoryError) or loading:
        return MachineLacks("there is not enough memory",
                            remedy="free some, or raise the limit of address space (ulimit -v)")
    return None
