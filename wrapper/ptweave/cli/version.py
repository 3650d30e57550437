# SPDX-License-Identifier: MIT
"""`ptweave --version`."""

from importlib.metadata import PackageNotFoundError, version


def version_line() -> str:
    try:
        return f"ptweave {version('ptweave')}"
    except PackageNotFoundError:
        return "ptweave (source tree)"
