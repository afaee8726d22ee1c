"""DescribeConfigs (32) of a broker that stores records: what is dynamic is read from ZooKeeper.

``kafka.server.ConfigHelper.handleDescribeConfigsRequest`` of Kafka 3.9 in ZooKeeper mode.
"""

from __future__ import annotations

from collections.abc import Mapping

from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.config.described import Configs, ConfigSource, DescribedConfig, effective_configs
from ctrlchan.server.access import DESCRIBE_CONFIGS_CLUSTER, DESCRIBE_CONFIGS_TOPIC, asks
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.apis import describe_configs

__all__ = ["API"]


class _Described:
    """What the API needs to describe the configs of a broker, for one request."""

    def __init__(self, core: StoringCore) -> None:
        self._core = core
        self._dynamic: dict[int | None, Mapping[str, str]] = {}
        self.id = core.id
        self.endpoints = core.endpoints
        self.rack = core.rack
        self.configs: Mapping[str, str] = core.configs

    def topic_configs(self, name: str) -> list[DescribedConfig] | None:
        """Return the configs of a topic, or None if there is no such topic."""
        store = self._core.config_store
        if not self._core.metadata.snapshot.has_topic(name):
            return None
        own: Mapping[str, str] = self._core.log_configs.own.get(name, {})
        if store is not None:
            own = store.read_topic_config(name) or {}
        behind = (
            Configs(self.dynamic_configs(self.id), ConfigSource.DYNAMIC_BROKER),
            Configs(self.dynamic_configs(None), ConfigSource.DYNAMIC_DEFAULT_BROKER),
            Configs(self.configs, ConfigSource.STATIC_BROKER),
        )
        return list(effective_configs(own, behind))

    def dynamic_configs(self, broker_id: int | None) -> Mapping[str, str]:
        """Return the dynamic configs of this broker, or those of all brokers (None)."""
        store = self._core.config_store
        if store is None:
            return {}
        if broker_id not in self._dynamic:
            self._dynamic[broker_id] = store.read_broker_config(broker_id)
        return self._dynamic[broker_id]


def _handle(core: StoringCore, request: Request) -> Reply:
    return describe_configs.describe(_Described(core), request)


# Without the core's lock, because configs are read from ZooKeeper.
API: Api[StoringCore] = Api(
    key=32,
    name="DescribeConfigs",
    lowest=0,
    highest=4,
    flexible_from=4,
    handle=_handle,
    locks_core=False,
    needs=asks(DESCRIBE_CONFIGS_TOPIC, DESCRIBE_CONFIGS_CLUSTER),
)
