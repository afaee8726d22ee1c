"""BrokerConfigs: for one broker, the configs of topics, users and brokers, quotas and features in ZooKeeper.

Source: ``kafka.server.ZkConfigManager`` and ``kafka.zk.AdminZkClient`` of Kafka 3.9.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from ctrlchan.errors import ConfigError, MalformedError, ZooKeeperError
from ctrlchan.topic_names import why_invalid
from ctrlchan.zookeeper import paths
from ctrlchan.zookeeper.notifications import NotificationNodes
from ctrlchan.zookeeper.operations import Operation
from ctrlchan.zookeeper.quotas import QuotaEntity, QuotaNodes, changed_entity
from ctrlchan.zookeeper.session import ZooKeeperSession

if TYPE_CHECKING:
    from ctrlchan.zookeeper.values import FeatureNode

__all__ = ["BrokerConfigs", "ConfiguredBroker", "ConfiguredUsers", "LimitedBroker"]

_LOG: Final = logging.getLogger("ctrlchan.broker")

_TOPICS: Final = "topics"
_BROKERS: Final = "brokers"
_USERS: Final = "users"
_RETRY_SECONDS: Final = 0.5
#: How long ``stop`` waits for the thread, which may wait for ZooKeeper.
_STOP_SECONDS: Final = 1.0


class ConfiguredBroker(Protocol):
    """The broker that the configs are for. The methods are called without a lock."""

    @property
    def id(self) -> int: ...
    def set_topic_configs(self, topic: str, configs: Mapping[str, str]) -> object:
        """Take the configs that are set for a topic. Raises ConfigError for a value that cannot be."""

    def set_broker_configs(self, own: Mapping[str, str], defaults: Mapping[str, str]) -> object:
        """Take the dynamic configs of this broker, and those of all brokers. Raises ConfigError."""

    def check_broker_configs(self, configs: Mapping[str, str], *, per_broker: bool) -> None:
        """Raise KafkaError for dynamic configs, of this broker or of all, that it cannot take."""

    def decoded(self, configs: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
        """Return the dynamic configs of ZooKeeper that can be used, with passwords as they are."""

    def encoded(self, configs: Mapping[str, str]) -> Mapping[str, str]:
        """Return dynamic configs as ZooKeeper gets them. Raises KafkaError where passwords cannot be kept."""

    def encoded_again(self, configs: Mapping[str, str]) -> Mapping[str, str] | None:
        """Return configs whose passwords had another secret with the present one; None for no such."""

    def written(self, configs: Mapping[str, str]) -> object:
        """Take notice that a client has set the dynamic configs of this broker, equal or not."""


class ConfiguredUsers(Protocol):
    """The users whose SCRAM credentials are in their configs. The methods are called without a lock."""

    def replace_all(self, configs: Mapping[str, Mapping[str, str]]) -> object:
        """Take the configs of all users."""

    def set_user(self, username: str, config: Mapping[str, str]) -> object:
        """Take the config of one user, an empty one if it is gone."""


class LimitedBroker(Protocol):
    """What the quotas are for. The methods are called without a lock, and take configurations of entities.

    ``malformed``: of which entities the node cannot be read, and why.
    """

    def replace_all(
        self, configs: Mapping[QuotaEntity, Mapping[str, str]], malformed: Mapping[QuotaEntity, str], /
    ) -> object:
        """Take all there are."""

    def replace(
        self, configs: Mapping[QuotaEntity, Mapping[str, str]], malformed: Mapping[QuotaEntity, str], /
    ) -> object:
        """Take those that have changed."""


class _Nodes(QuotaNodes, NotificationNodes):
    """A broker's writes to ZooKeeper: they do not check the controller epoch."""

    def write(self, operations: Sequence[Operation]) -> list[int]:
        return self.session.multi(operations)


class BrokerConfigs:
    """Gives a broker its configs at the start and whenever they change; reads and writes them for its APIs.

    ``session``: of the broker's registration, which has started. ``in_metadata``: whether the metadata has a
    topic. ``users``: get the configs of users, too. ``limited``: what the quotas are for, None for nothing.
    ``take_features``: is given the node of the finalized features, None without a readable one; it raises
    ConfigError for those that the broker does not support. Reads and writes raise ZooKeeperError.
    """

    def __init__(
        self,
        broker: ConfiguredBroker,
        session: ZooKeeperSession,
        in_metadata: Callable[[str], bool],
        users: ConfiguredUsers | None = None,
        limited: LimitedBroker | None = None,
        take_features: Callable[[FeatureNode | None], object] | None = None,
    ) -> None:
        self._broker = broker
        self._users = users
        self._limited = limited
        self._take_features = take_features
        self._in_metadata = in_metadata
        self._nodes = _Nodes(session)
        # Notifications that are done. Their numbers are no help: a node may have any name.
        self._seen: frozenset[str] = frozenset()
        self._changed = threading.Event()
        self._read_all = self._read_features = False
        #: Held while the broker is given something; guards ``_stopped``.
        self._giving = threading.Lock()
        self._stopped = False
        self._thread = threading.Thread(target=self._follow, name=f"broker-{broker.id}-configs", daemon=True)

    @property
    def id(self) -> int:
        """The id of the broker."""
        return self._broker.id

    def start(self) -> None:
        """Give the broker all configs, and those that change from now on.

        Raises ZooKeeperError, and ConfigError for finalized features that the broker does not support.
        """
        again = self._broker.encoded_again(self._nodes.read_broker_config(self.id))
        if again is not None:
            self._nodes.write_broker_config(self.id, again)
        self._apply_features()
        self._apply_all()
        self._thread.start()

    def read_again(self) -> None:
        """Give the broker all configs again: the session is a new one, or was without a connection."""
        self._read_all = True
        self._changed.set()

    def stop(self) -> None:
        """Give the broker nothing more. A thread that waits for ZooKeeper ends with the session."""
        with self._giving:
            self._stopped = True
        self._changed.set()
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECONDS)

    # -- for the APIs

    def has_topic(self, name: str) -> bool:
        """Return whether a topic exists and is not being deleted.

        ZooKeeper is asked about one that the metadata has not: the controller, which clients take for one
        more broker, shows a new topic before this broker knows of it.
        """
        if self._in_metadata(name):
            return True
        if why_invalid(name) is not None:
            return False
        topic, deleted = self._nodes.session.get_many([paths.topic(name), paths.deleted_topic(name)])
        return topic is not None and deleted is None

    def read_topic_config(self, name: str) -> Mapping[str, str] | None:
        """Return the configs that are set for a topic, or None if the topic has no node."""
        return self._nodes.read_topic_config(name)

    def write_topic_config(self, name: str, config: Mapping[str, str]) -> None:
        """Replace the configs of a topic, and tell all brokers."""
        self._nodes.write_topic_config(name, config)

    def read_broker_config(self, broker_id: int | None) -> dict[str, str]:
        """Return the dynamic configs of this broker that can be used, or those of all brokers (None)."""
        configs = self._nodes.read_broker_config(broker_id)
        return self._broker.decoded(configs, per_broker=broker_id is not None)

    def check_broker_config(
        self, broker_id: int | None, config: Mapping[str, str], _changed: Sequence[str]
    ) -> None:
        """Raise KafkaError (INVALID_REQUEST) for dynamic configs that the broker cannot take."""
        self._broker.check_broker_configs(config, per_broker=broker_id is not None)

    def write_broker_config(self, broker_id: int | None, config: Mapping[str, str]) -> None:
        """Replace the dynamic configs of this broker, or those of all brokers (None), and tell all brokers.

        Raises KafkaError (INVALID_CONFIG) where passwords cannot be encoded.
        """
        encoded = self._broker.encoded(config)
        if broker_id is not None:
            self._broker.written(config)
        self._nodes.write_broker_config(broker_id, encoded)

    def user_names(self) -> list[str]:
        """Return the names of the users with a config."""
        return self._nodes.user_names()

    def read_user_config(self, user: str) -> Mapping[str, str] | None:
        """Return the config of a user, with the SCRAM credentials, or None if there is none."""
        return self._nodes.read_user_config(user)

    def read_quotas(self, types: Iterable[str]) -> Mapping[QuotaEntity, Mapping[str, str]]:
        """Return the configurations of all entities whose first type is among these."""
        return self._nodes.read_quotas(types)

    def read_quota(self, entity: QuotaEntity) -> dict[str, str]:
        """Return the configuration of an entity with quotas."""
        return self._nodes.read_quota(entity)

    def write_quota(self, entity: QuotaEntity, config: Mapping[str, str]) -> None:
        """Replace the configuration of an entity with quotas, and tell all brokers."""
        self._nodes.write_quota(entity, config)

    # -- what changes

    def _notified(self, _path: str) -> None:
        self._changed.set()

    def _features_notified(self, _path: str) -> None:
        self._read_features = True
        self._changed.set()

    def _follow(self) -> None:
        while True:
            self._changed.wait()
            self._changed.clear()
            if self._stopped:
                return
            try:
                if self._read_all or self._read_features:
                    self._read_features = False
                    self._follow_features()
                if self._read_all:
                    self._read_all = False
                    self._apply_all()
                else:
                    self._apply_changes()
            except ZooKeeperError as error:
                if self._stopped:
                    return
                _LOG.warning("broker %d: the changed configs cannot be read: %s", self.id, error)
                threading.Event().wait(_RETRY_SECONDS)
                self.read_again()

    def _apply_all(self) -> None:
        # The watch is set before anything is read: what changes later is a change.
        self._seen = frozenset(self._nodes.config_changes(self._notified))
        names = sorted(self._nodes.session.children(paths.TOPIC_CONFIGS) or [])
        self._apply_brokers()
        self._apply_all_users()
        self._apply_topics(names)
        if self._limited is None:
            return
        configs, malformed = self._nodes.read_intact_quotas()
        with self._giving:
            if not self._stopped:
                self._limited.replace_all(configs, malformed)

    def _follow_features(self) -> None:
        """Give the broker the features as they are now. Raises ZooKeeperError."""
        try:
            self._apply_features()
        except ConfigError as error:
            _LOG.error("broker %d: %s", self.id, error)

    def _apply_features(self) -> None:
        """Give the broker the features, and watch their node. Raises ZooKeeperError, ConfigError."""
        if self._take_features is None:
            return
        try:
            node = self._nodes.read_feature(self._features_notified)
        except ZooKeeperError as error:
            if not isinstance(error.__cause__, MalformedError):
                raise
            _LOG.error("broker %d: finalized features are not used: %s", self.id, error)
            node = None
        with self._giving:
            if not self._stopped:
                self._take_features(node)

    def _apply_changes(self) -> None:
        names = self._nodes.config_changes(self._notified)
        fresh = [name for name in names if name not in self._seen]
        if not fresh:
            return
        entities = self._nodes.read_config_changes(fresh)
        self._seen = frozenset(names)
        if any(kind == _BROKERS and name in (paths.DEFAULT_ENTITY, str(self.id)) for kind, name in entities):
            self._apply_brokers()
        # Below a user are his client ids, which have quotas alone.
        self._apply_users(sorted({name for kind, name in entities if kind == _USERS and "/" not in name}))
        self._apply_topics(sorted({name for kind, name in entities if kind == _TOPICS}))
        self._apply_quotas([changed_entity(kind, name) for kind, name in entities])

    def _apply_quotas(self, entities: Iterable[QuotaEntity | None]) -> None:
        if self._limited is None:
            return
        configs: dict[QuotaEntity, Mapping[str, str]] = {}
        malformed: dict[QuotaEntity, str] = {}
        for entity in filter(None, entities):
            config, reason = self._nodes.read_intact_quota(entity)
            if config is None:
                malformed[entity] = reason
            else:
                configs[entity] = config
        with self._giving:
            if not self._stopped and (configs or malformed):
                self._limited.replace(configs, malformed)

    def _apply_brokers(self) -> None:
        own, defaults = self._nodes.read_broker_config(self.id), self._nodes.read_broker_config(None)
        with self._giving:
            if self._stopped:
                return
            try:
                self._broker.set_broker_configs(own, defaults)
            except ConfigError as error:
                # Kafka's tools refuse such a value; whoever writes nodes can write any.
                _LOG.error("broker %d: its dynamic configs stay as they were: %s", self.id, error)

    def _apply_all_users(self) -> None:
        if self._users is None:
            return
        names = self._nodes.user_names()
        configs = self._nodes.read_user_configs(names)
        with self._giving:
            if not self._stopped:
                self._users.replace_all(
                    {name: config or {} for name, config in zip(names, configs, strict=True)}
                )

    def _apply_users(self, sanitized: Sequence[str]) -> None:
        if self._users is None:
            return
        names = [paths.unsanitized(name) for name in sanitized if name != paths.DEFAULT_ENTITY]
        for name, config in zip(names, self._nodes.read_user_configs(names), strict=True):
            with self._giving:
                if not self._stopped:
                    self._users.set_user(name, config or {})

    def _apply_topics(self, names: Sequence[str]) -> None:
        for name, config in zip(names, self._nodes.read_topic_configs(names), strict=True):
            with self._giving:
                if self._stopped:
                    return
                try:
                    self._broker.set_topic_configs(name, config or {})
                except ConfigError as error:
                    _LOG.error(
                        "broker %d: the configs of topic %s stay as they were: %s", self.id, name, error
                    )
