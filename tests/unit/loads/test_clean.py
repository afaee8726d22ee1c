"""``ctrlchan bench clean``: what a run has left goes, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from ctrlchan import EmbeddedCluster
from ctrlchan.cli import main
from ctrlchan.loads.guard import OwnNames, find_runs, new_run
from tests.unit.loads.conftest import topics_of


def clean(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run the command; return its status, output and errors."""
    with pytest.raises(SystemExit) as end:
        main(["bench", "clean", *words])
    printed = capfd.readouterr()
    return int(end.value.code or 0), printed.out, printed.err


def test_what_a_killed_run_has_left_is_named_and_deleted(
    cluster: EmbeddedCluster, cluster_id: str, users_own: str, capfd: pytest.CaptureFixture[str]
) -> None:
    client: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap_servers}
    killed, other = new_run(), new_run()
    for run in (killed, other):
        OwnNames(client, run).create_topic(f"{run}-records", 1, 1)
        consumer = Consumer({**client, "group.id": f"{run}-group-0"})
        consumer.commit(offsets=[TopicPartition(f"{run}-records", 0, 1)], asynchronous=False)
        consumer.close()
    cluster.create_topic("ctrlchan-bench-of-a-user", 1)
    where = ["-b", cluster.bootstrap_servers]
    try:
        status, out, _ = clean(capfd, *where)
        assert status == 0
        assert sorted(out.splitlines()) == sorted(f"{run}: 1 topics, 1 groups" for run in (killed, other))
        assert topics_of(cluster) >= {f"{killed}-records", f"{other}-records"}

        status, _, err = clean(capfd, *where, "--cluster-id", "other", killed)
        assert (status, "not other: nothing is done" in err) == (1, True)
        status, _, err = clean(capfd, *where, "--cluster-id", cluster_id, "orders")
        assert (status, "no name of a run" in err) == (1, True)
        assert find_runs(client) == dict.fromkeys((killed, other), (1, 1))

        status, _, err = clean(capfd, *where, "--cluster-id", cluster_id, killed)
        assert status == 0, err
        assert find_runs(client) == {other: (1, 1)}
        assert topics_of(cluster) >= {f"{other}-records", users_own, "ctrlchan-bench-of-a-user"}
        status, _, err = clean(capfd, *where, "--cluster-id", cluster_id, killed)
        assert (status, f"{killed} has left nothing" in err) == (0, True)
    finally:
        for run in (killed, other):
            OwnNames(client, run).delete([f"{run}-group-0"])
        cluster.delete_topics("ctrlchan-bench-of-a-user")
    assert clean(capfd, *where)[2] == "no run has left anything\n"


def test_a_cluster_has_to_be_named(capfd: pytest.CaptureFixture[str]) -> None:
    assert clean(capfd)[::2] == (1, "error: which cluster? --bootstrap-server HOST:PORT\n")
