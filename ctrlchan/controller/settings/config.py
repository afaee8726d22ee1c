"""The settings of a controller, under Kafka's keys where Kafka has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ctrlchan.channel import ChannelConfig
from ctrlchan.errors import ConfigError
from ctrlchan.protocol import ibp_at_least
from ctrlchan.security.listener_security import ListenerSecurity
from ctrlchan.server.delegation_tokens.settings import DelegationTokenSettings
from ctrlchan.state import Endpoint
from ctrlchan.text import quoted, why_unsendable
from ctrlchan.zookeeper.settings import SaslSettings, TlsSettings, ZooKeeperSettings

__all__ = ["ControllerConfig"]

_MAX_ID: Final = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class ControllerConfig:
    """The settings of one controller. Times are seconds; the defaults are Kafka's.

    Raises ConfigError, naming the setting, for a value that cannot work.

    - ``controller_id``: an id that no broker has (``broker.id``).
    - ``zookeeper``: ``HOST:PORT[,HOST:PORT...][/chroot]`` (``zookeeper.connect``).
    - ``zookeeper_session_timeout`` (18) and ``zookeeper_connection_timeout`` (None: as the session timeout)
      (``zookeeper.session.timeout.ms``, ``zookeeper.connection.timeout.ms``).
    - ``zookeeper_tls``, ``zookeeper_sasl``, ``zookeeper_digest`` (none), ``zookeeper_set_acl`` (False): see
      ``ctrlchan.zookeeper.settings.ZooKeeperSettings`` (``zookeeper.ssl.…``, ``zookeeper.set.acl``).
    - ``channel`` (defaults): how the controller connects to brokers; its ``inter_broker_protocol`` is the
      IBP of the controller. The controller id replaces the one in it.
    - ``listeners`` (none): where the controller answers requests (``listeners``); port 0 takes any free one.
    - ``advertised_listeners`` (None: ``listeners``): the addresses that brokers and clients are given
      (``advertised.listeners``).
    - ``announced`` (True): whether brokers and clients see a controller with listeners among the live
      brokers. Where it is not announced, the settings of the brokers have its address.
    - ``listener_security`` (none): of listeners whose security protocol is not PLAINTEXT, by listener name.
    - ``authorizer`` (none: all is allowed): the settings of the authorizer of requests, under Kafka's keys,
      ``authorizer.class.name`` among them.
    - ``policies`` (none): the settings of the policies, under Kafka's keys,
      ``create.topic.policy.class.name`` and ``alter.config.policy.class.name`` among them.
    - ``delegation_tokens`` (none): the key and the times of delegation tokens (``delegation.token.…``).
    - ``rack`` (None): needed when the brokers have racks (``broker.rack``).
    - ``delete_topics`` (True): whether topics can be deleted (``delete.topic.enable``).
    - ``unclean_leader_election`` (False): for topics that do not set it
      (``unclean.leader.election.enable``).
    - ``auto_leader_rebalance`` (True), ``leader_imbalance_percentage`` (10),
      ``leader_imbalance_check_interval`` (300): elect preferred leaders when a broker leads too few of its
      partitions (``auto.leader.rebalance.enable``, ``leader.imbalance.per.broker.percentage``,
      ``leader.imbalance.check.interval.seconds``).
    - ``num_partitions`` (1), ``default_replication_factor`` (1): of topics that are created without
      (``num.partitions``, ``default.replication.factor``).
    - ``topic_defaults`` (none): the controller's own values of topic settings (``log.…`` and others), by key
      of the topic setting.
    """

    controller_id: int
    zookeeper: str
    zookeeper_session_timeout: float = 18.0
    zookeeper_connection_timeout: float | None = None
    zookeeper_tls: TlsSettings | None = None
    zookeeper_sasl: SaslSettings | None = None
    zookeeper_digest: tuple[str, str] | None = field(default=None, repr=False)
    zookeeper_set_acl: bool = False
    channel: ChannelConfig = field(default_factory=ChannelConfig)
    listeners: tuple[Endpoint, ...] = ()
    advertised_listeners: tuple[Endpoint, ...] | None = None
    announced: bool = True
    listener_security: Mapping[str, ListenerSecurity] = field(default_factory=dict)
    authorizer: Mapping[str, str] = field(default_factory=dict, repr=False)
    policies: Mapping[str, str] = field(default_factory=dict, repr=False)
    delegation_tokens: DelegationTokenSettings = field(default_factory=DelegationTokenSettings)
    rack: str | None = None
    delete_topics: bool = True
    unclean_leader_election: bool = False
    auto_leader_rebalance: bool = True
    leader_imbalance_percentage: int = 10
    leader_imbalance_check_interval: float = 300.0
    num_partitions: int = 1
    default_replication_factor: int = 1
    topic_defaults: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.controller_id <= _MAX_ID:
            raise ConfigError(f"controller_id: {self.controller_id!r} is not in 0 .. {_MAX_ID}")
        for name in (
            "zookeeper_session_timeout",
            "zookeeper_connection_timeout",
            "leader_imbalance_check_interval",
            "num_partitions",
            "default_replication_factor",
        ):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name}: {value!r} is not above 0")
        for listener in self.listeners:
            security = self.listener_security.get(listener.listener, ListenerSecurity())
            security.check(listener.listener, listener.security_protocol)
        texts = [("rack", self.rack or "")]
        for endpoint in (*self.listeners, *(self.advertised_listeners or ())):
            texts += [("the name of listener", endpoint.listener), ("host", endpoint.host)]
        for what, text in texts:
            if (why := why_unsendable(text)) is not None:
                raise ConfigError(f"{what} {quoted(text)} {why}")
        if self.leader_imbalance_percentage < 0:
            raise ConfigError(f"leader_imbalance_percentage: {self.leader_imbalance_percentage!r} is below 0")
        if self.channel.controller_id != self.controller_id:
            object.__setattr__(self, "channel", replace(self.channel, controller_id=self.controller_id))

    @property
    def zookeeper_settings(self) -> ZooKeeperSettings:
        """The settings of the session."""
        return ZooKeeperSettings(
            connect=self.zookeeper,
            session_timeout=self.zookeeper_session_timeout,
            tls=self.zookeeper_tls,
            sasl=self.zookeeper_sasl,
            digest=self.zookeeper_digest,
            set_acl=self.zookeeper_set_acl,
        )

    def is_for_brokers(self, listener: str) -> bool:
        """Return whether brokers ask the controller on this listener (Kafka: a privileged listener).

        It is the inter-broker or the control-plane listener. The name of an only listener does not matter.
        """
        names = (
            self.channel.broker_listener,
            self.channel.listener_name,
        )
        return len(self.listeners) == 1 or listener in names

    @property
    def inter_broker_protocol(self) -> str:
        """The version that all brokers of the cluster can be relied upon to have."""
        return self.channel.inter_broker_protocol

    @property
    def feature_versioning(self) -> bool:
        """Whether ``/feature`` is enabled (KIP-584)."""
        return ibp_at_least(self.inter_broker_protocol, "2.7-IV0")

    @property
    def alter_partition(self) -> bool:
        """Whether brokers change ISRs by AlterPartition (KIP-497); older ones write state nodes."""
        return ibp_at_least(self.inter_broker_protocol, "2.7-IV2")

    @property
    def uses_topic_ids(self) -> bool:
        """Whether topics without an id are given one (KIP-516)."""
        return ibp_at_least(self.inter_broker_protocol, "2.8-IV0")

    @property
    def recovery_state(self) -> bool:
        """Whether an unclean election sets the leader recovery state (KIP-704)."""
        return ibp_at_least(self.inter_broker_protocol, "3.2-IV0")
