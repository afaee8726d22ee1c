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


def own_topics(cluster: EmbeddedCluster) -> list[str]:
    """Return the topics of runs."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    return sorted(name for name in admin.list_topics(timeout=30).topics if name.startswith(PREFIX))
