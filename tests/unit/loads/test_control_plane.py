"""``leaders``, ``topics`` and ``restarts``: the cluster has seen as many changes as they count."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from ctrlchan import EmbeddedCluster
from ctrlchan.cli import main
from ctrlchan.embedded.requests import topic_metadata
from ctrlchan.errors import ConfigError
from ctrlchan.loads.kinds.leaders import settings_of_kafka_python
from tests.kafka.waiting import wait_until
from tests.unit.loads.conftest import own_topics, topics_of


def test_each_move_is_a_leader_epoch(bench: Any, cluster: EmbeddedCluster, users_own: str) -> None:
    before = _epochs(cluster, users_own)
    words = ["--partitions", 4, "--replication", 2, "--batch", 2, "--clients", 2, "--keep"]
    found = bench("leaders", *words, warmup=0.2)
    done = found["operations"]
    assert all(one["errors"] == {} for one in done.values())
    moved = done["move"]["items"] + done["move"]["warmup_items"]
    assert moved > 8
    # A reassignment and an election are an epoch each. The broker may hear of the last ones after the answer.
    topic = f"{found['run']}-records"
    wait_until(lambda: sum(_epochs(cluster, topic)) == 2 * moved, what=f"{2 * moved} leader epochs")
    assert _epochs(cluster, users_own) == before


def test_moves_have_a_rate_in_partitions(bench: Any, cluster: EmbeddedCluster) -> None:
    found = bench("leaders", "--replication", 2, "--partitions", 6, "--batch", 3, "--rate", 30)
    assert (found["operations"]["move"]["count"], found["operations"]["move"]["items"]) == (10, 30)
    assert own_topics(cluster) == []


def test_leaders_need_replicas(
    cluster: EmbeddedCluster, cluster_id: str, capfd: pytest.CaptureFixture[str]
) -> None:
    where = ["-b", cluster.bootstrap_servers, "--cluster-id", cluster_id]
    with pytest.raises(SystemExit) as end:
        main(["bench", "leaders", *where, "--replication", "1"])
    assert end.value.code == 1
    assert "leaders move between replicas" in capfd.readouterr().err
    assert own_topics(cluster) == []


def test_settings_of_security_reach_both_clients() -> None:
    client = {
        "bootstrap.servers": "b:9",
        "linger.ms": "5",
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "p",
        "ssl.ca.location": "ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }
    assert settings_of_kafka_python(client) == {
        "bootstrap_servers": "b:9",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "u",
        "sasl_plain_password": "p",
        "ssl_cafile": "ca.pem",
        "ssl_check_hostname": False,
    }
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location"):
        settings_of_kafka_python({"ssl.keystore.location": "x.p12"})


@pytest.mark.usefixtures("users_own")
def test_all_created_topics_are_deleted(bench: Any, cluster: EmbeddedCluster) -> None:
    found = bench("topics", "--batch", 3, "--partitions", 2, "--clients", 2, "--rate", 12)
    done = found["operations"]
    assert {name: (one["count"], one["items"], one["errors"]) for name, one in done.items()} == {
        "create": (4, 12, {}),
        "delete": (4, 12, {}),
    }
    assert found["topics_left"] == 0
    assert own_topics(cluster) == []
    assert "users-own" in topics_of(cluster)


def test_brokers_of_an_embedded_cluster_restart_while_records_are_produced() -> None:
    command = [sys.executable, "-m", "ctrlchan", "bench", "restarts", "--embedded", "2", "--rate", "200"]
    command += ["--warmup", "0.5", "--pause", "0.2", "--partitions", "4", "--json", "-"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    done = found["operations"]
    assert (done["restart"]["count"], done["in sync"]["count"]) == (2, 2)
    assert done["restart"]["latency_ms"]["max"] > 10
    records = done["produce"]["items"] + done["produce"]["warmup_items"]
    # With acks=all and idempotence nothing is lost and nothing doubled.
    assert done["produce"]["errors"] == {}
    assert records == found["records_in_topic"] > 100


def test_only_own_brokers_are_restarted(
    cluster: EmbeddedCluster, cluster_id: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for words in (["-b", cluster.bootstrap_servers, "--cluster-id", cluster_id], ["--embedded", "1"]):
        with pytest.raises(SystemExit) as end:
            main(["bench", "restarts", *words])
        assert end.value.code == 1
        assert "only brokers of this command are restarted" in capfd.readouterr().err


def _epochs(cluster: EmbeddedCluster, topic: str) -> list[int]:
    """Return the leader epoch of each partition."""
    endpoint = cluster.brokers[0].endpoints[0]
    _, found = topic_metadata((endpoint.host, endpoint.port), topic)
    return [int(one.leader_epoch) for one in found.partitions]
