"""For all tests."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.fault import channels
from tests.kafka.zookeeper_fixtures import znodes, zookeeper, zookeeper_server
from tests.spark import class_archive

__all__ = ["znodes", "zookeeper", "zookeeper_server"]

# A background job of a shell ignores Ctrl-C, and so would all that tests start, and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# On a loaded machine any example may take long.
settings.register_profile("no deadline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no deadline")

os.environ.setdefault("SPARK_SUBMIT_OPTS", class_archive.JVM_OPTIONS)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Let no search for garbage look at the modules and the cases: they live as long as this process."""
    gc.collect()
    gc.freeze()


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
