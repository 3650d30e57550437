# SPDX-License-Identifier: MIT
"""Which ptweave this is."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version

SOURCE_TREE = "source tree"


@cache  # who records as another user could not find it out again
def ptweave_version() -> str:
    """The installed version; SOURCE_TREE without one."""
    try:
        return version("ptweave")
    except PackageNotFoundError:
        return SOURCE_TREE
