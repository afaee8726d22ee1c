"""What clients see of an EmbeddedCluster: its id, and all listeners of its brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from ctrlchan import EmbeddedCluster


def test_the_cluster_has_the_id_that_it_was_given_and_its_brokers_describe_all_listeners(
    tmp_path: Path,
) -> None:
    given: dict[str, Any] = {"log_dir": tmp_path, "more_listeners": {"EXTRA": "127.0.0.1:0"}}
    with EmbeddedCluster(2, cluster_id="my-cluster", **given) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        assert admin.list_topics(timeout=30).cluster_id == "my-cluster"
        for broker in cluster.brokers:
            resource = ConfigResource(ConfigResource.Type.BROKER, str(broker.id))
            configs = admin.describe_configs([resource])[resource].result(30)
            listeners = ",".join(map(str, broker.endpoints))
            assert len(broker.endpoints) == 2
            assert configs["listeners"].value == configs["advertised.listeners"].value == listeners
            protocols = configs["listener.security.protocol.map"].value
            assert protocols == "PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT"
    with EmbeddedCluster(2, cluster_id="another", **given) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        assert admin.list_topics(timeout=30).cluster_id == "my-cluster"
