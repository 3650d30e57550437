# SPDX-License-Identifier: MIT
"""What holds for every test: how property tests draw their examples, and a mark by which they are found."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

settings.register_profile("search", max_examples=3000, deadline=None, print_blob=True,
                          suppress_health_check=[HealthCheck.too_slow])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and is_hypothesis_test(item.obj):
            item.add_marker(pytest.mark.property)
