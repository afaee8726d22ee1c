"""LogConfigs: the settings of all logs of a broker, as they change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.config.message_format import topic_warning
from ctrlchan.config import table
from ctrlchan.errors import ConfigError, ZooKeeperError

__all__ = ["LogConfigs"]

logger = logging.getLogger("ctrlchan.broker")


class LogConfigs:
    """The settings of topics, over those of the broker, over Kafka's defaults. ``lock`` guards them.

    ``static``: the broker's own settings, by Kafka's names. Raises ConfigError.
    """

    def __init__(
        self, broker_id: int, static: Mapping[str, str], lock: AbstractContextManager[object]
    ) -> None:
        self.id = broker_id
        self._lock = lock
        #: Settings of topics that have no own ones.
        self.defaults = LogConfig.from_broker_configs(static)
        self._protocol = table.INTER_BROKER_PROTOCOL_VERSION.of(static)
        #: Own configs of topics: topic -> Kafka's name -> value.
        self.own: dict[str, dict[str, str]] = {}
        self._topics: Callable[[], Collection[str]] = tuple
        self._update: Callable[[str, LogConfig], object] = lambda _topic, _config: None
        # Until ``follow``: the settings with which the logs of each topic were loaded.
        self._loaded: dict[str, set[LogConfig]] | None = {}

    def follow(
        self, topics: Callable[[], Collection[str]], update: Callable[[str, LogConfig], object]
    ) -> None:
        """Pass changed settings to open logs from now on, and those that changed during the loading.

        ``topics``: those that have a log.
        """
        with self._lock:
            self._topics, self._update = topics, update
            loaded, self._loaded = self._loaded or {}, None
            for topic in topics():
                config = self.of(topic)
                if loaded.get(topic) != {config}:
                    update(topic, config)

    def of(self, topic: str) -> LogConfig:
        """Return the settings of a topic's logs; those of the broker where the topic's cannot be used."""
        try:
            config = self.defaults.with_configs(self.own.get(topic, {}))
        except ConfigError as error:
            logger.error("broker %d: the configs of topic %s are not used: %s", self.id, topic, error)
            config = self.defaults
        if self._loaded is not None:
            self._loaded.setdefault(topic, set()).add(config)
        return config

    def set_topic_configs(self, topic: str, own: Mapping[str, str]) -> None:
        """Replace a topic's own configs; its open logs follow. Raises ConfigError."""
        config = self.defaults.with_configs(own)
        self._warn_of(topic, own)
        with self._lock:
            if own:
                self.own[topic] = dict(own)
            else:
                self.own.pop(topic, None)
            self._update(topic, config)

    def of_new_log(
        self, read: Callable[[str], Mapping[str, str] | None] | None, topic: str, is_new: bool
    ) -> LogConfig:
        """Return the settings of a topic that gets a log; nobody announces the configs of a new topic.

        ``read`` returns a topic's own configs, or raises ZooKeeperError. It is None without ZooKeeper.
        """
        with self._lock:
            if read is not None and (is_new or topic not in self.own):
                try:
                    self.own[topic] = dict(read(topic) or {})
                    self._warn_of(topic, self.own[topic])
                except ZooKeeperError as error:
                    logger.warning("broker %d: the configs of %s cannot be read: %s", self.id, topic, error)
            return self.of(topic)

    def _warn_of(self, topic: str, own: Mapping[str, str]) -> None:
        if (line := topic_warning(topic, own, self._protocol)) is not None:
            logger.warning("broker %d: %s", self.id, line)

    def set_defaults(self, defaults: LogConfig) -> None:
        """Replace the settings of topics that have no own ones; their open logs follow."""
        with self._lock:
            if defaults == self.defaults:
                return
            self.defaults = defaults
            for topic in self._topics():
                self._update(topic, self.of(topic))
