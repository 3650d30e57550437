# SPDX-License-Identifier: MIT
"""What several unit tests of the merge have in common."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", params=[True, False], ids=["few", "many"])
def few_or_many(request: pytest.FixtureRequest) -> Iterator[None]:
    """What was recorded is little, and held in memory, or so much that DuckDB is asked for it."""
    with pytest.MonkeyPatch.context() as patched:
        if not request.param:
            patched.setattr("ptweave.merge.in_order.FEW_BYTES", 0)
        yield
