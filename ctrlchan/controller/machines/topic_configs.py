"""The settings of topics and brokers in ZooKeeper that the controller acts on.

``unclean.leader.election.enable`` of a topic stands in ``/config/topics/T``; without it that of the
controller's id in ``/config/brokers``, of ``/config/brokers/<default>``, and of the controller's own settings
counts, in this order. Source: ``kafka.zk.KafkaZkClient.getLogConfigs``,
``kafka.server.ZkConfigManager``, ``kafka.server.TopicConfigHandler`` (Kafka 3.9).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ctrlchan.config import table
from ctrlchan.controller.settings.config import ControllerConfig
from ctrlchan.errors import ConfigError
from ctrlchan.zookeeper.cluster import ClusterNodes

__all__ = ["TopicConfigs", "UncleanElections"]

Bool: TypeAlias = npt.NDArray[np.bool_]

_LOG: Final = logging.getLogger(__name__)

_TOPICS: Final = "topics"
_BROKERS: Final = "brokers"
_DEFAULT: Final = "<default>"


class UncleanElections(NamedTuple):
    """Where settings that changed allow unclean elections: everywhere, or for these topics."""

    by_default: bool
    topics: list[str]


class TopicConfigs:
    """Reads settings when they are needed, as Kafka does, and the notifications of changes.

    Used on the event loop's thread alone. Methods raise ZooKeeperError.
    """

    def __init__(self, nodes: ClusterNodes, config: ControllerConfig) -> None:
        self._nodes = nodes
        self._config = config
        # Elections after a failover use the settings of that time: what is older is no change.
        self._seen = frozenset(nodes.config_changes())

    def unclean_election_enabled(self, topics: Sequence[bytes]) -> Bool:
        """Return a flag for each topic: whether a replica out of sync may become leader."""
        names = [name.decode() for name in topics]
        configs = self._nodes.read_topic_configs(names)
        default = self._unclean_by_default() if names else False
        flags = [_flag(name, config or {}, default) for name, config in zip(names, configs, strict=True)]
        return np.array(flags, bool)

    def unclean_elections_enabled(self, changes: Sequence[str]) -> UncleanElections:
        """Return where settings that changed since the last call allow unclean elections.

        ``changes``: the children of ``/config/changes``, which may have any names.
        """
        fresh = sorted(set(changes) - self._seen)
        self._seen = frozenset(changes)
        if not fresh:
            return UncleanElections(False, [])
        changed = self._nodes.read_config_changes(fresh)
        brokers = {_DEFAULT, str(self._config.controller_id)}
        by_default = (
            any(kind == _BROKERS and name in brokers for kind, name in changed) and self._unclean_by_default()
        )
        topics = sorted({name for kind, name in changed if kind == _TOPICS})
        configs = self._nodes.read_topic_configs(topics)
        enabled = [
            name
            for name, config in zip(topics, configs, strict=True)
            if config is not None and _flag(name, config, False)
        ]
        return UncleanElections(by_default, enabled)

    def _unclean_by_default(self) -> bool:
        enabled = self._config.unclean_leader_election
        for broker_id in (None, self._config.controller_id):
            config = self._nodes.read_broker_config(broker_id)
            enabled = _flag(f"broker {_DEFAULT if broker_id is None else broker_id}", config, enabled)
        return enabled


def _flag(name: str, config: Mapping[str, str], default: bool) -> bool:
    setting = table.UNCLEAN_LEADER_ELECTION_ENABLE
    try:
        return setting.of(config) if setting.name in config else default
    except ConfigError as refused:
        _LOG.error("%s: %s; it is ignored", name, refused)
        return default
