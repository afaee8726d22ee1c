"""DescribeConfigs (32): configs of topics, of the controller itself, and the dynamic ones of all brokers.

``ConfigHelper.handleDescribeConfigsRequest`` of Kafka 3.9 in ZooKeeper mode. What
is dynamic is read from ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Mapping

from ctrlchan.config import table
from ctrlchan.config.described import (
    Configs,
    ConfigSource,
    DescribedConfig,
    broker_names,
    effective_configs,
)
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.server.access import DESCRIBE_CONFIGS_CLUSTER, DESCRIBE_CONFIGS_TOPIC, asks
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.apis import describe_configs

__all__ = ["API"]


class _Described:
    """What the API of an embedded broker needs to describe the configs of a controller."""

    def __init__(self, core: ServerCore) -> None:
        self._core = core
        self._cluster = core.cluster()
        self._dynamic: dict[int | None, Mapping[str, str]] = {}
        self.id = core.id
        self.endpoints = (core.endpoint,)
        self.rack = core.config.rack
        self.configs: Mapping[str, str] = {
            table.NUM_PARTITIONS.name: str(core.config.num_partitions),
            table.DEFAULT_REPLICATION_FACTOR.name: str(core.config.default_replication_factor),
            table.DELETE_TOPIC_ENABLE.name: str(core.config.delete_topics).lower(),
            table.INTER_BROKER_PROTOCOL_VERSION.name: core.config.inter_broker_protocol,
        }

    def topic_configs(self, name: str) -> list[DescribedConfig] | None:
        """Return the configs of a topic, or None if there is no such topic."""
        with self._cluster.metadata.state.lock:
            if self._cluster.metadata.topic_row(name) is None:
                return None
        own = self._core.read_topic_config(name)
        behind = (
            Configs(self.dynamic_configs(None), ConfigSource.DYNAMIC_DEFAULT_BROKER),
            Configs(broker_names(self._core.config.topic_defaults), ConfigSource.STATIC_BROKER),
        )
        return list(effective_configs(own, behind))

    def dynamic_configs(self, broker_id: int | None) -> Mapping[str, str]:
        """Return the dynamic configs of a broker, or those of all brokers (None)."""
        if broker_id not in self._dynamic:
            self._dynamic[broker_id] = self._core.read_broker_config(broker_id)
        return self._dynamic[broker_id]


def _handle(core: ServerCore, request: Request) -> Reply:
    return describe_configs.describe(_Described(core), request)


# Configs are read from ZooKeeper.
API: Api[ServerCore] = Api(
    key=describe_configs.API.key,
    name=describe_configs.API.name,
    lowest=describe_configs.API.lowest,
    highest=describe_configs.API.highest,
    flexible_from=describe_configs.API.flexible_from,
    handle=_handle,
    needs=asks(DESCRIBE_CONFIGS_TOPIC, DESCRIBE_CONFIGS_CLUSTER),
)
