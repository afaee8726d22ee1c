"""``ctrlchan bench`` against real Kafka 3.9 and an EmbeddedCluster: exact counts, and nothing that stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from ctrlchan.cli import main
from ctrlchan.loads.guard import PREFIX, find_cluster
from tests.acceptance.either_cluster import EitherCluster

Bench = Callable[..., Any]


@pytest.fixture
def bench(either: EitherCluster, capfd: pytest.CaptureFixture[str]) -> Bench:
    """Run the command for two seconds without a warm-up; return its summary."""

    def run(kind: str, *words: object) -> Any:
        cluster_id = find_cluster({"bootstrap.servers": either.bootstrap}).cluster_id
        where = ["-b", either.bootstrap, "--cluster-id", cluster_id, "--replication", 3, "--partitions", 6]
        arguments = ["bench", kind, *where, "--warmup", 0, "--seconds", 2, "--json", "-", *words]
        with pytest.raises(SystemExit) as end:
            main(list(map(str, arguments)))
        printed = capfd.readouterr()
        assert end.value.code == 0, printed.err
        return json.loads(printed.out)

    return run


def left(either: EitherCluster) -> list[str]:
    """Return topics and groups of runs."""
    admin = AdminClient({"bootstrap.servers": either.bootstrap})
    groups = [one.group_id for one in admin.list_consumer_groups().result(30).valid]
    return [name for name in [*admin.list_topics(timeout=30).topics, *groups] if name.startswith(PREFIX)]


def test_produce(bench: Bench, either: EitherCluster) -> None:
    found = bench("produce", "--rate", 500, "--clients", 2)
    one = found["operations"]["produce"]
    assert (one["count"], one["errors"], found["records_in_topic"]) == (1_000, {}, 1_000)
    assert found["brokers"] == 3
    assert left(either) == []


def test_consume(bench: Bench, either: EitherCluster) -> None:
    found = bench("consume", "--rate", 200, "--linger", 0)
    one = found["operations"]["end to end"]
    assert (one["count"], one["errors"], found["records_in_topic"]) == (400, {}, 400)
    found = bench("consume", "--records", 5_000)
    assert found["records_in_topic"] == 5_000
    assert found["operations"]["read"]["items"] > 5_000
    assert left(either) == []


def test_leaders(bench: Bench, either: EitherCluster) -> None:
    found = bench("leaders", "--batch", 3, "--rate", 30)
    counts = {name: (one["count"], one["items"]) for name, one in found["operations"].items()}
    assert counts == {"move": (20, 60), "reassign": (20, 60), "elect": (20, 60)}
    assert all(one["errors"] == {} for one in found["operations"].values())
    assert left(either) == []


def test_topics(bench: Bench, either: EitherCluster) -> None:
    found = bench("topics", "--batch", 5, "--partitions", 2, "--rate", 10)
    counts = {name: (one["count"], one["items"]) for name, one in found["operations"].items()}
    assert counts == {"create": (4, 20), "delete": (4, 20)}
    assert found["topics_left"] == 0
    assert left(either) == []


def test_groups_and_transactions(bench: Bench, either: EitherCluster) -> None:
    done = bench("groups", "--members", 2, "--groups", 2, "--rate", 50)["operations"]
    assert done["join"]["count"] >= 1
    assert done["commit"]["items"] == 6 * done["commit"]["count"] > 0
    done = bench("transactions", "--rate", 10, "--records", 3, "--abort-every", 4)["operations"]
    assert (done["transaction"]["count"], done["transaction"]["items"]) == (15, 45)
    assert (done["abort"]["count"], done["abort"]["items"]) == (5, 15)
    assert left(either) == []
