"""For all tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

from tests.fault import channels

#: Sparks of tests live for seconds: what the optimizing compiler gains in them it costs, on all cores.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m")


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
