"""For all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fault import channels


@pytest.fixture(autouse=True)
def _bystanders(request: pytest.FixtureRequest) -> Iterator[None]:
    """Processes that shared fixtures have started are nobody's leak (``channels.holdings``)."""
    if hasattr(request.module, "holdings"):
        channels.BYSTANDERS.update(channels.child_pids())
    yield
    channels.BYSTANDERS.clear()
