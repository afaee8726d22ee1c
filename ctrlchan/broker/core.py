"""The state of one broker, without its socket and without its APIs."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ctrlchan.broker.metadata.configs import DescribedConfig, cluster_wide_configs, topic_configs
from ctrlchan.broker.metadata.hosted_replicas import HostedReplicas
from ctrlchan.broker.metadata.metadata_cache import MetadataCache
from ctrlchan.broker.metadata.settings import setting
from ctrlchan.state import Broker, Endpoint

if TYPE_CHECKING:
    from ctrlchan.broker.log.config import LogConfig

__all__ = ["DEFAULT_CLUSTER_ID", "BrokerCore"]

DEFAULT_CLUSTER_ID = "ctrlchan-embedded"


class BrokerCore:
    """Holds what a broker has been sent, and its own registration.

    Belongs to the event loop's thread. In a broker that stores records ``lock`` guards it: handler threads
    hold it while an API uses the core.

    ``endpoint``: its only listener; Metadata shows the live brokers that have a listener of this name.
    ``epoch``: of its registration; requests with a lower broker epoch are refused. -1: none is refused.
    ``configs``: its settings under Kafka's names; DescribeConfigs shows them as static broker configs.
    ``partitions``, ``logs``, ``replica_manager``, ``groups``, ``producer_ids``: of a broker that stores
    records, otherwise None. ``controller``: its connection to the controller, None without one.
    """

    def __init__(
        self,
        broker_id: int,
        endpoint: Endpoint,
        *,
        epoch: int = -1,
        rack: str | None = None,
        cluster_id: str = DEFAULT_CLUSTER_ID,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        self.id = broker_id
        self.endpoint = endpoint
        self.epoch = epoch
        self.rack = rack
        self.configs = dict(configs or {})
        self.controller_epoch = 0
        self.metadata = MetadataCache(cluster_id)
        self.replicas = HostedReplicas()
        self.lock = threading.RLock()
        self.partitions: Any = None
        self.logs: Any = None
        self.replica_manager: Any = None
        #: Settings of topics that have no own ones; None for a broker that stores no records.
        self.log_defaults: LogConfig | None = None
        self.groups: Any = None
        self.producer_ids: Any = None
        self.controller: Any = None
        self.config_store: Any = None
        self.faults: Any = None
        #: Own configs of topics: topic -> Kafka's name -> value.
        self.topic_overrides: dict[str, dict[str, str]] = {}
        # Of this broker, and of all brokers.
        self._dynamic: tuple[dict[str, str], dict[str, str]] = {}, {}

    @property
    def cluster_id(self) -> str:
        return self.metadata.state.cluster_id

    @cluster_id.setter
    def cluster_id(self, cluster_id: str) -> None:
        self.metadata.state.cluster_id = cluster_id

    @property
    def broker(self) -> Broker:
        """Id, epoch, endpoint and rack: what a channel needs to connect."""
        return Broker(self.id, self.epoch, (self.endpoint,), self.rack)

    def topic_configs(self, name: str) -> Iterable[DescribedConfig] | None:
        """Return the configs of a topic, None: this broker knows no such topic."""
        return None if self.metadata.topic_row(name) is None else topic_configs()

    def setting(self, name: str) -> str:
        """Return the broker's own value of a setting, or its default."""
        return setting(self.configs, name)

    def topic_log_config(self, topic: str) -> LogConfig:
        """Return the settings of a topic's logs. Only for a broker that stores records."""
        assert self.log_defaults is not None
        return self.log_defaults.with_topic_configs(self.topic_overrides.get(topic, {}))

    def set_topic_configs(self, topic: str, own: Mapping[str, str]) -> None:
        """Replace a topic's own configs; its open logs follow. Raises ConfigError."""
        assert self.log_defaults is not None
        config = self.log_defaults.with_topic_configs(own)
        with self.lock:
            if own:
                self.topic_overrides[topic] = dict(own)
            else:
                self.topic_overrides.pop(topic, None)
            if self.replica_manager is not None:
                self.replica_manager.update_config(topic, config)

    def set_broker_configs(self, own: Mapping[str, str], defaults: Mapping[str, str]) -> None:
        """Replace the dynamic configs of this broker and of all; logs follow. Raises ConfigError."""
        dynamic = cluster_wide_configs()
        effective = dict(self.configs)
        for configs in (defaults, own):
            effective |= {name: value for name, value in configs.items() if name in dynamic}
        assert self.log_defaults is not None
        log_defaults = type(self.log_defaults).from_broker_configs(effective)
        with self.lock:
            self._dynamic = dict(own), dict(defaults)
            if log_defaults == self.log_defaults:
                return
            self.log_defaults = log_defaults
            if self.replica_manager is not None:
                for topic in self.replica_manager.topics():
                    self.replica_manager.update_config(topic, self.topic_log_config(topic))

    def has_topic(self, name: str) -> bool:
        """Return whether the metadata has a topic."""
        with self.lock:
            return self.metadata.topic_row(name) is not None

    def dynamic_configs(self, broker_id: int | None) -> Mapping[str, str]:
        """Return the dynamic configs of this broker, or those of all brokers (None)."""
        own, defaults = self._dynamic
        return defaults if broker_id is None else own

    def describe(self) -> dict[str, Any]:
        """Return what the broker holds, in values that JSON can carry."""
        state, columns = self.metadata.state, self.replicas.columns
        led = columns.leader == self.id
        return {
            "id": self.id,
            "epoch": self.epoch,
            "rack": self.rack,
            "listener": self.endpoint.listener,
            "host": self.endpoint.host,
            "port": self.endpoint.port,
            "cluster_id": self.cluster_id,
            "controller_id": state.controller_id,
            "controller_epoch": self.controller_epoch,
            "metadata": {
                "topics": len(self.metadata.topic_rows()),
                "partitions": len(state.partitions),
                "live_brokers": sorted(state.broker_ids.tolist()),
            },
            "replicas": {
                "partitions": len(self.replicas),
                "led": int(np.count_nonzero(led)),
                "followed": int(np.count_nonzero(~led & (columns.leader_epoch >= 0))),
                "offline": int(np.count_nonzero(self.replicas.offline)),
            },
        }
