"""The state of one broker, without its socket and without its APIs."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ctrlchan.broker.metadata.configs import DescribedConfig, topic_configs
from ctrlchan.broker.metadata.hosted_replicas import HostedReplicas
from ctrlchan.broker.metadata.metadata_cache import MetadataCache
from ctrlchan.broker.metadata.settings import setting
from ctrlchan.state import Broker, Endpoint

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
        self.groups: Any = None
        self.producer_ids: Any = None
        self.controller: Any = None
        #: Own configs of topics: topic -> Kafka's name -> value.
        self.topic_overrides: dict[str, dict[str, str]] = {}

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

    def set_topic_configs(self, topic: str, own: Mapping[str, str]) -> None:
        """Replace a topic's own configs; its open logs follow at once."""
        self.topic_overrides.pop(topic, None)
        if own:
            self.topic_overrides[topic] = dict(own)
        if self.replica_manager is not None:
            self.replica_manager.update_config(topic)

    @staticmethod
    def dynamic_configs(_broker_id: int | None) -> Mapping[str, str]:
        """Return no configs: an embedded broker cannot be reconfigured."""
        return {}

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
