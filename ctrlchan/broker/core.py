"""BrokerCore: what the handlers of a broker share."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ctrlchan.broker.metadata.hosted_replicas import HostedReplicas
from ctrlchan.broker.metadata.metadata_cache import MetadataCache
from ctrlchan.broker.node import BrokerNode
from ctrlchan.config.described import DescribedConfig, topic_configs
from ctrlchan.state import Broker, Endpoint

if TYPE_CHECKING:
    from ctrlchan.broker.coordinator.group_service import GroupService
    from ctrlchan.broker.replica.replica_manager import ReplicaManager

__all__ = ["BrokerCore"]


@dataclass(frozen=True, kw_only=True)
class BrokerCore:
    """The parts of a broker. No part is replaced; what changes is inside of the parts.

    ``lock`` guards ``replicas``: handler threads hold it while an API uses the core. ``metadata`` has a lock
    of its own, ``metadata.state.lock``.
    ``replica_manager`` and ``groups``: of a broker that stores records (``StoringCore``).
    """

    node: BrokerNode
    metadata: MetadataCache
    replicas: HostedReplicas = field(default_factory=HostedReplicas)
    lock: AbstractContextManager[object] = field(default_factory=threading.RLock)
    replica_manager: ReplicaManager | None = None
    groups: GroupService | None = None

    @property
    def id(self) -> int:
        return self.node.id

    @property
    def endpoint(self) -> Endpoint:
        return self.node.endpoint

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """All listeners; the first one is ``endpoint``."""
        return self.node.broker.endpoints

    @property
    def epoch(self) -> int:
        return self.node.epoch

    @property
    def rack(self) -> str | None:
        return self.node.rack

    @property
    def cluster_id(self) -> str:
        return self.node.cluster_id

    @property
    def configs(self) -> Mapping[str, str]:
        """The static settings, under Kafka's names."""
        return self.node.configs

    @property
    def broker(self) -> Broker:
        return self.node.broker

    @property
    def controller_epoch(self) -> int:
        """The highest epoch of a controller whose request was applied."""
        return self.replicas.controller_epoch

    def topic_configs(self, name: str) -> Iterable[DescribedConfig] | None:
        """Return the configs of a topic, or None if this broker does not know the topic."""
        return None if self.metadata.topic_row(name) is None else topic_configs()

    def dynamic_configs(self, _broker_id: int | None) -> Mapping[str, str]:
        """Return the dynamic configs of this broker, or those of all brokers (None)."""
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
