"""The state of a broker that stores records."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ctrlchan.broker.core import BrokerCore
from ctrlchan.config.definitions import cluster_wide_configs
from ctrlchan.errors import ConfigError

if TYPE_CHECKING:
    from ctrlchan.broker.config.log_config import LogConfig
    from ctrlchan.broker.config.zookeeper_configs import BrokerConfigs
    from ctrlchan.broker.controller_client import ControllerClient
    from ctrlchan.broker.coordinator.group_service import GroupService
    from ctrlchan.broker.faults import Faults
    from ctrlchan.broker.log.manager import LogManager
    from ctrlchan.broker.metadata.published_metadata import PublishedMetadata
    from ctrlchan.broker.producer_ids import ProducerIds
    from ctrlchan.broker.replica._partitions import PartitionTable
    from ctrlchan.broker.replica.replica_manager import ReplicaManager

__all__ = ["StoringCore"]

logger = logging.getLogger("ctrlchan.broker")


class StoringCore(BrokerCore):
    """Holds what its APIs use besides the state of every broker. ``StoringService.start`` sets it.

    ``lock`` guards it: handler threads hold it while an API uses the core. It may be held for seconds, while
    a LeaderAndIsr opens logs: what clients ask for is answered without it, from ``metadata.snapshot`` or
    under ``metadata.state.lock``.
    """

    metadata: PublishedMetadata
    partitions: PartitionTable
    logs: LogManager
    replica_manager: ReplicaManager
    groups: GroupService
    producer_ids: ProducerIds
    faults: Faults
    #: Settings of topics that have no own ones.
    log_defaults: LogConfig
    #: The connection to the controller, and the configs in ZooKeeper; None for a broker without ZooKeeper.
    controller: ControllerClient | None = None
    config_store: BrokerConfigs | None = None

    def topic_log_config(self, topic: str) -> LogConfig:
        """Return the settings of a topic's logs; those of the broker where the topic's cannot be used."""
        try:
            return self.log_defaults.with_topic_configs(self.topic_overrides.get(topic, {}))
        except ConfigError as error:
            logger.error("broker %d: the configs of topic %s are not used: %s", self.id, topic, error)
            return self.log_defaults

    def set_topic_configs(self, topic: str, own: Mapping[str, str]) -> None:
        """Replace a topic's own configs; its open logs follow. Raises ConfigError."""
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
        log_defaults = type(self.log_defaults).from_broker_configs(effective)
        with self.lock:
            self.dynamic = dict(own), dict(defaults)
            if log_defaults == self.log_defaults:
                return
            self.log_defaults = log_defaults
            if self.replica_manager is not None:
                for topic in self.replica_manager.topics():
                    self.replica_manager.update_config(topic, self.topic_log_config(topic))

    def has_topic(self, name: str) -> bool:
        """Return whether the metadata has a topic."""
        return self.metadata.snapshot.has_topic(name)

    def _new_metadata(self, cluster_id: str) -> PublishedMetadata:
        # Imported here: its extension is not built for brokers without records.
        from ctrlchan.broker.metadata.published_metadata import PublishedMetadata

        return PublishedMetadata(cluster_id)
