"""A cluster whose settings name policies, and that deletes no topics."""

from __future__ import annotations

import pytest

import ctrlchan
from ctrlchan.errors import ErrorCode, KafkaError
from tests.unit.config import test_policies as policies

CONFIGS: dict[str, str | bool] = {
    "create.topic.policy.class.name": f"{policies.__name__}.Topics",
    "alter.config.policy.class.name": f"{policies.__name__}.Configs",
    "delete.topic.enable": False,
}


def test_a_cluster_with_policies() -> None:
    with ctrlchan.EmbeddedCluster(2, configs=CONFIGS) as cluster:
        with pytest.raises(KafkaError, match="small is too small") as raised:
            cluster.create_topic("small", replication_factor=1)
        assert raised.value.code == ErrorCode.POLICY_VIOLATION
        cluster.create_topic("large", replication_factor=2, configs={"retention.ms": 1000})
        with pytest.raises(KafkaError) as raised:
            cluster.delete_topics("large")
        assert raised.value.code == ErrorCode.TOPIC_DELETION_DISABLED
