"""``consume``, ``groups`` and ``transactions``: what they say they have done is what the cluster has."""

from __future__ import annotations

from typing import Any

import pytest

from ctrlchan import EmbeddedCluster
from ctrlchan.cli import main
from tests.unit.loads.conftest import own_topics


def test_a_filled_topic_is_read_again_and_again(bench: Any, cluster: EmbeddedCluster) -> None:
    found = bench(
        "consume", "--records", 1_001, "--clients", 2, "--partitions", 3, "--size", 30, "--keep", seconds=4
    )
    one = found["operations"]["read"]
    assert found["records_in_topic"] == 1_001
    records = cluster.records(f"{found['run']}-records")
    # Each client has filled partitions of its own.
    assert [sum(one.partition == number for one in records) for number in range(3)] == [251, 500, 250]
    assert one["items"] > 1_001
    assert one["count"] < one["items"]
    assert one["bytes_per_second"] == pytest.approx(one["items_per_second"] * 30)


def test_consumers_follow_producers_at_a_rate(bench: Any) -> None:
    found = bench("consume", "--rate", 300, "--clients", 2, "--partitions", 4, "--linger", 0, warmup=0.5)
    one = found["operations"]["end to end"]
    assert one["errors"] == {}
    assert (one["count"], one["warmup_items"], found["records_in_topic"]) == (300, 150, 450)
    assert one["latency_ms"]["p50"] > 0


def test_members_commit_what_the_groups_have(bench: Any, cluster: EmbeddedCluster) -> None:
    found = bench(
        "groups", "--members", 2, "--groups", 2, "--partitions", 3, "--commits", 7, "--keep", seconds=3
    )
    done = found["operations"]
    assert done["join"]["count"] >= 1
    assert done["leave"]["count"] >= done["join"]["count"]
    # Both members are alone in their groups and commit for all three partitions; each commit one offset more.
    assert done["commit"]["errors"] == {}
    assert done["commit"]["items"] == 3 * done["commit"]["count"]
    committed = [_committed(cluster, f"{found['run']}-group-{number}", found["run"]) for number in range(2)]
    assert all(len(one) == 3 and len(set(one)) == 1 for one in committed), committed
    assert sum(one[0] for one in committed) == done["commit"]["count"]
    _delete_groups(cluster, [f"{found['run']}-group-{number}" for number in range(2)])


def test_groups_are_deleted_and_commits_have_a_rate(bench: Any, cluster: EmbeddedCluster) -> None:
    found = bench("groups", "--members", 3, "--rate", 60, "--partitions", 6, seconds=4)
    done = found["operations"]
    commits = done["commit"]
    # Those that are due while the group rebalances fail.
    assert 0 < commits["count"] + sum(commits["errors"].values()) <= 4 * 60
    assert done["join"]["count"] >= 3
    assert not [name for name in _groups(cluster) if name.startswith(found["run"])]


def test_committed_transactions_are_visible_and_others_not(bench: Any, cluster: EmbeddedCluster) -> None:
    words = ["--clients", 2, "--records", 5, "--abort-every", 3, "--partitions", 2, "--size", 20, "--keep"]
    found = bench("transactions", *words, warmup=0.3)
    done = found["operations"]
    assert all(one["errors"] == {} for one in done.values())
    committed, aborted = (
        done[name]["items"] + done[name]["warmup_items"] for name in ("transaction", "abort")
    )
    topic = f"{found['run']}-records"
    assert len(cluster.records(topic, isolation="read_committed")) == committed
    assert len(cluster.records(topic)) == committed + aborted
    assert aborted == pytest.approx(committed / 2, abs=2 * 2 * 5)
    # With the warm-up: a transaction may begin in it, and be committed after it.
    assert done["commit"]["items"] + done["commit"]["warmup_items"] == committed


def test_transactions_have_a_rate(bench: Any, cluster: EmbeddedCluster) -> None:
    found = bench("transactions", "--rate", 20, "--records", 3)
    assert found["operations"]["transaction"]["count"] == 20
    assert found["operations"]["transaction"]["items"] == 60
    assert own_topics(cluster) == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["consume", "--clients", "3", "--partitions", "2"], "each client reads a partition of its own"),
        (["consume", "--size", "7", "--rate", "1"], "--size must be 8 or more"),
        (["groups", "--members", "2", "--groups", "3"], "each group has a member"),
        (["groups", "--members", "5", "--partitions", "4"], "5 members of a group need as many partitions"),
        (["transactions", "--acks", "1"], "acknowledged by all"),
    ],
)
def test_loads_that_cannot_be(
    cluster: EmbeddedCluster,
    cluster_id: str,
    capfd: pytest.CaptureFixture[str],
    words: list[str],
    reason: str,
) -> None:
    where = ["-b", cluster.bootstrap_servers, "--cluster-id", cluster_id]
    with pytest.raises(SystemExit) as end:
        main(["bench", *words, *where])
    assert end.value.code == 1
    assert reason in capfd.readouterr().err
    assert own_topics(cluster) == []


def _admin(cluster: EmbeddedCluster) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers})


def _groups(cluster: EmbeddedCluster) -> list[str]:
    admin = _admin(cluster)
    return [one.group_id for one in admin.list_consumer_groups().result(30).valid]


def _delete_groups(cluster: EmbeddedCluster, groups: list[str]) -> None:
    admin = _admin(cluster)
    for future in admin.delete_consumer_groups(groups).values():
        future.result(30)


def _committed(cluster: EmbeddedCluster, group: str, run: str) -> list[int]:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    topic = f"{run}-records"
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, number) for number in range(3)])
    admin = _admin(cluster)
    found = admin.list_consumer_group_offsets([asked])[group].result(30)
    # -1001: none, such as of a group whose member has not joined in time.
    return [max(0, one.offset) for one in found.topic_partitions]
