# SPDX-License-Identifier: MIT
"""`ptweave --version`."""

from ptweave.wrapper.version import SOURCE_TREE, ptweave_version


def version_line() -> str:
    found = ptweave_version()
    return f"ptweave ({found})" if found == SOURCE_TREE else f"ptweave {found}"
