"""For all tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.fault import channels


@pytest.fixture(autouse=True)
def _bystanders(request: pytest.FixtureRequest) -> Iterator[None]:
    """What shared fixtures have started and mapped is nobody's leak (``channels.holdings``)."""
    if hasattr(request.module, "holdings"):
        gc.collect()
        channels.BYSTANDERS.update(channels.child_pids())
        channels.MAPPED.update(channels.our_mappings())
    yield
    channels.BYSTANDERS.clear()
    channels.MAPPED.clear()
