"""BrokerSettings: the settings of all parts of a broker that stores records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ctrlchan.broker.config.group_config import GroupConfig
from ctrlchan.broker.config.log_manager_settings import LogManagerSettings
from ctrlchan.broker.config.message_format import refuse_old_format
from ctrlchan.broker.config.parts import (
    FetcherSettings,
    LogDirMoveSettings,
    NewTopicSettings,
    PeerSettings,
    QuotaSettings,
    ReplicaSettings,
    RequestSettings,
    ShutdownSettings,
    server_settings,
)
from ctrlchan.broker.config.transaction_config import TransactionConfig
from ctrlchan.config.without_effect import refuse_unserved
from ctrlchan.server.delegation_tokens.settings import DelegationTokenSettings
from ctrlchan.server.socket_server import SocketServerSettings

__all__ = ["BrokerSettings"]


class BrokerSettings(NamedTuple):
    """The settings of each part, parsed. Those of logs, which change, are in ``LogConfigs``."""

    logs: LogManagerSettings
    replicas: ReplicaSettings
    fetchers: FetcherSettings
    peers: PeerSettings
    log_dir_moves: LogDirMoveSettings
    groups: GroupConfig
    transactions: TransactionConfig
    requests: RequestSettings
    server: SocketServerSettings
    new_topics: NewTopicSettings
    quotas: QuotaSettings
    shutdown: ShutdownSettings
    tokens: DelegationTokenSettings

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> BrokerSettings:
        """Return the settings that configs have under Kafka's names, and the defaults. Raises ConfigError."""
        refuse_unserved(configs)
        refuse_old_format(configs)
        return cls(
            logs=LogManagerSettings.of(configs),
            replicas=ReplicaSettings.of(configs),
            fetchers=FetcherSettings.of(configs),
            peers=PeerSettings.of(configs),
            log_dir_moves=LogDirMoveSettings.of(configs),
            groups=GroupConfig.of(configs),
            transactions=TransactionConfig.of(configs),
            requests=RequestSettings.of(configs),
            server=server_settings(configs),
            new_topics=NewTopicSettings.of(configs),
            quotas=QuotaSettings.of(configs),
            shutdown=ShutdownSettings.of(configs),
            tokens=DelegationTokenSettings.of(configs),
        )
