"""A cluster for all tests of loads, and the command against it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ctrlchan import EmbeddedCluster
from ctrlchan.cli import main
from ctrlchan.loads.guard import PREFIX, find_cluster


@pytest.fixture(scope="package")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(2) as started:
        yield started


@pytest.fixture(scope="package")
def cluster_id(cluster: EmbeddedCluster) -> str:
    return find_cluster({"bootstrap.servers": cluster.bootstrap_servers}).cluster_id


@pytest.fixture
def bench(cluster: EmbeddedCluster, cluster_id: str, capfd: pytest.CaptureFixture[str]) -> Iterator[Any]:
    """``ctrlchan bench`` with ``--json -``: returns its summary; what it was to keep goes after the test."""

    def run(kind: str, *words: object, warmup: float = 0, seconds: float = 1) -> Any:
        where = ["-b", cluster.bootstrap_servers, "--cluster-id", cluster_id]
        length = ["--warmup", warmup, "--seconds", seconds]
        with pytest.raises(SystemExit) as end:
            main(list(map(str, ["bench", kind, *where, *length, "--json", "-", *words])))
        printed = capfd.readouterr()
        assert end.value.code == 0, printed.err
        return json.loads(printed.out)

    yield run
    for name in own_topics(cluster):
        cluster.delete_topics(name)


@pytest.fixture
def users_own(cluster: EmbeddedCluster) -> Iterator[str]:
    """A topic of two partitions that no load may touch, on both brokers."""
    cluster.create_topic("users-own", 2, 2)
    yield "users-own"
    cluster.delete_topics("users-own")


def topics_of(cluster: EmbeddedCluster) -> set[str]:
    """Return the names of all topics."""
    from confluent_kafka.admin import AdminClient

    return set(AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=30).topics)


def own_topics(cluster: EmbeddedCluster) -> list[str]:
    """Return the topics of runs."""
    return sorted(name for name in topics_of(cluster) if name.startswith(PREFIX))
