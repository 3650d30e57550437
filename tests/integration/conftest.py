# SPDX-License-Identifier: MIT
"""Fixtures of the integration tests."""

from __future__ import annotations

import pytest

from support.pt_oracle import Oracle


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    """libipt's instruction decoder, compiled once."""
    return Oracle(tmp_path_factory.mktemp("oracle"))
