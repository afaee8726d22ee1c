"""StoringCore: what the handlers of a broker that stores records share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctrlchan.broker.core import BrokerCore
from ctrlchan.config.policies import NO_POLICIES, Policies

if TYPE_CHECKING:
    from ctrlchan.broker._decisions import Decisions
    from ctrlchan.broker.config.broker_settings import BrokerSettings
    from ctrlchan.broker.config.log_configs import LogConfigs
    from ctrlchan.broker.config.zookeeper_configs import BrokerConfigs
    from ctrlchan.broker.controller_client import ControllerClient
    from ctrlchan.broker.coordinator.group_service import GroupService
    from ctrlchan.broker.coordinator.transaction_service import TransactionService
    from ctrlchan.broker.faults import Faults
    from ctrlchan.broker.log.manager import LogManager
    from ctrlchan.broker.log.old_formats.fetched import OldFetches
    from ctrlchan.broker.metadata.published_metadata import KnownAnswers, PublishedMetadata
    from ctrlchan.broker.producer_ids import ProducerIds
    from ctrlchan.broker.quota._client_quotas import ClientQuotas
    from ctrlchan.broker.quota.callback import AskedQuotas
    from ctrlchan.broker.quota.replication import ReplicationQuotas
    from ctrlchan.broker.replica._partitions import PartitionTable
    from ctrlchan.broker.replica.replica_manager import ReplicaManager
    from ctrlchan.broker.replica.selector import SelectingReplicas
    from ctrlchan.server.delegation_tokens.delegation_tokens import DelegationTokens
    from ctrlchan.zookeeper.consumer_offsets import ConsumerOffsets

__all__ = ["StoringCore"]


@dataclass(frozen=True, kw_only=True)
class StoringCore(BrokerCore):
    """The parts of a broker that stores records. ``BrokerServer.start`` builds them.

    ``lock`` may be held for seconds, while a LeaderAndIsr opens logs: what clients ask for is answered
    without it, from ``metadata.snapshot`` or under ``metadata.state.lock``. ``controller``: the way to the
    controller, ``config_store``: the configs in ZooKeeper; both are None for a broker without ZooKeeper.
    ``decisions``: what the processors know of the authorizer's; None without an authorizer. ``tokens``: the
    delegation tokens; None without ``delegation.token.secret.key``. ``selecting``: asks the user's own
    selector of replicas; None without one. ``policies``: of the configs that clients change; those of new
    topics are the controller's. ``old_fetches``: the requests whose records are converted; None without
    processors. ``consumer_offsets``: those in ZooKeeper; None without one. ``asked_quotas``: asks the user's
    own class for quotas; None without one. ``known_metadata``: answers to Metadata that processors repeat;
    None with an authorizer, whose answers differ from client to client.
    """

    settings: BrokerSettings
    metadata: PublishedMetadata
    replica_manager: ReplicaManager
    logs: LogManager
    log_configs: LogConfigs
    groups: GroupService
    transactions: TransactionService
    producer_ids: ProducerIds
    faults: Faults
    quotas: ClientQuotas
    replication_quotas: ReplicationQuotas
    controller: ControllerClient | None = None
    config_store: BrokerConfigs | None = None
    decisions: Decisions | None = None
    tokens: DelegationTokens | None = None
    policies: Policies = NO_POLICIES
    selecting: SelectingReplicas | None = None
    old_fetches: OldFetches | None = None
    consumer_offsets: ConsumerOffsets | None = None
    asked_quotas: AskedQuotas | None = None
    known_metadata: KnownAnswers | None = None

    @property
    def partitions(self) -> PartitionTable:
        return self.replica_manager.table
