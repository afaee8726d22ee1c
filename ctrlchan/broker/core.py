"""The state of one broker, without its socket and without its APIs."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ctrlchan.broker.config.broker_config import DEFAULT_CLUSTER_ID, BrokerConfig
from ctrlchan.broker.metadata.hosted_replicas import HostedReplicas
from ctrlchan.broker.metadata.metadata_cache import MetadataCache
from ctrlchan.config.definitions import DescribedConfig, topic_configs
from ctrlchan.state import Broker, Endpoint, SecurityProtocol

if TYPE_CHECKING:
    from ctrlchan.broker.coordinator.group_service import GroupService
    from ctrlchan.broker.replica._partitions import PartitionTable
    from ctrlchan.broker.replica.replica_manager import ReplicaManager

__all__ = ["BrokerCore", "core_of"]

C = TypeVar("C", bound="BrokerCore")


class BrokerCore:
    """Holds what a broker has been sent, and its own registration.

    Belongs to the event loop's thread. In a broker that stores records ``lock`` guards it: handler threads
    hold it while an API uses the core. ``metadata`` has a lock of its own, ``metadata.state.lock``.

    ``endpoint``: the listener that other brokers and the controller connect to, and the only one of a broker
    that stores no records; ``more_endpoints``: others. Metadata shows the live brokers that have the listener
    of the request.
    ``epoch``: of its registration; requests with a lower broker epoch are refused. -1: all are accepted.
    ``configs``: its settings under Kafka's names; DescribeConfigs shows them as static broker configs.
    ``partitions``, ``replica_manager``, ``groups``: of a broker that stores records (``StoringCore``).
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
        self.more_endpoints: tuple[Endpoint, ...] = ()
        self.epoch = epoch
        self.rack = rack
        self.configs = dict(configs or {})
        self.controller_epoch = 0
        self.metadata = self._new_metadata(cluster_id)
        self.replicas = HostedReplicas()
        self.lock = threading.RLock()
        self.partitions: PartitionTable | None = None
        self.replica_manager: ReplicaManager | None = None
        self.groups: GroupService | None = None
        #: Own configs of topics: topic -> Kafka's name -> value.
        self.topic_overrides: dict[str, dict[str, str]] = {}
        #: Dynamic configs of this broker, and of all brokers.
        self.dynamic: tuple[dict[str, str], dict[str, str]] = {}, {}

    def _new_metadata(self, cluster_id: str) -> MetadataCache:
        return MetadataCache(cluster_id)

    @property
    def cluster_id(self) -> str:
        return self.metadata.state.cluster_id

    @cluster_id.setter
    def cluster_id(self, cluster_id: str) -> None:
        self.metadata.state.cluster_id = cluster_id

    @property
    def broker(self) -> Broker:
        """Id, epoch, endpoints and rack: what a channel needs to connect."""
        return Broker(self.id, self.epoch, (self.endpoint, *self.more_endpoints), self.rack)

    def topic_configs(self, name: str) -> Iterable[DescribedConfig] | None:
        """Return the configs of a topic, or None if this broker knows no such topic."""
        return None if self.metadata.topic_row(name) is None else topic_configs()

    def dynamic_configs(self, broker_id: int | None) -> Mapping[str, str]:
        """Return the dynamic configs of this broker, or those of all brokers (None)."""
        own, defaults = self.dynamic
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


def core_of(config: BrokerConfig, kind: type[C]) -> C:
    """Return the state of a new broker."""
    endpoint, *more = (
        Endpoint(name, SecurityProtocol.PLAINTEXT, *config.advertised.get(name, (host, port)))
        for name, host, port in config.listeners
    )
    core = kind(
        config.id,
        endpoint,
        epoch=config.epoch,
        rack=config.rack,
        cluster_id=config.cluster_id,
        configs=config.kafka_configs(),
    )
    core.more_endpoints = tuple(more)
    return core
