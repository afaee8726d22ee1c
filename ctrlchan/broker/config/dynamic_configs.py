"""DynamicConfigs: the configs of a broker as they change while it runs, and the parts that follow them.

Its own dynamic configs stand over those of all brokers, and those over the broker's file. ``BrokerConfigs``
brings both from ZooKeeper, and asks for the checks of AlterConfigs. A part of the broker follows by giving
two functions: one makes its settings of all configs, the other takes settings that have changed.
Source: ``DynamicBrokerConfig`` of Kafka 3.9 in ZooKeeper mode.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ctrlchan.broker.config.broker_settings import BrokerSettings
from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.config.log_configs import LogConfigs
from ctrlchan.config import table
from ctrlchan.config.dynamic import (
    changes_listener,
    check_dynamic,
    is_password,
    listener_of,
    row_of,
    usable,
)
from ctrlchan.config.setting import ConfigType, Setting
from ctrlchan.errors import ConfigError, ErrorCode, KafkaError
from ctrlchan.security.password_encoder import PasswordEncoder

__all__ = ["DynamicConfigs"]

S = TypeVar("S")

logger: Final = logging.getLogger("ctrlchan.broker")

#: ``DynamicThreadPool``, and the processors of a listener: from half to double at once.
_THREADS: Final[tuple[Setting[int], ...]] = (
    table.NUM_IO_THREADS,
    table.NUM_REPLICA_FETCHERS,
    table.NUM_RECOVERY_THREADS_PER_DATA_DIR,
    table.BACKGROUND_THREADS,
    table.NUM_NETWORK_THREADS,
)
#: Limits of connections of a listener, or of all.
_CONNECTIONS: Final = (table.MAX_CONNECTIONS.name, table.MAX_CONNECTION_CREATION_RATE.name)
#: What a broker binds and registers at its start.
_AT_START: Final = (table.LISTENERS, table.ADVERTISED_LISTENERS, table.LISTENER_SECURITY_PROTOCOL_MAP)


@dataclass(slots=True)
class _Follower:
    """A part, with the ``settings`` that it has: ``read`` makes them of all configs, ``take`` gives them.

    ``check``, ``reread``: as of ``DynamicConfigs.follow``.
    """

    read: Callable[[Mapping[str, str]], Any]
    take: Callable[[Any], object]
    settings: Any
    check: Callable[[Any], object] | None
    reread: Callable[[], object] | None


class DynamicConfigs:
    """The configs of one broker. ``static``: those of its file, by Kafka's names. Raises ConfigError.

    ``topics``: takes the configs of topics. ``listeners``: the names of those that the broker has. Any thread
    may call the methods.
    """

    def __init__(
        self, broker_id: int, static: Mapping[str, str], topics: LogConfigs, listeners: Iterable[str] = ()
    ) -> None:
        self.id = broker_id
        self._static = {name: text for name, text in static.items() if not _is_dynamic_only(name)}
        self._topics = topics
        self._listeners = tuple(listeners)
        self._encoder, self._old_encoder = _encoders(static)
        #: Guards the parts; held while they take settings. Taken before all other locks of the broker.
        self._applying = threading.RLock()
        self._followers: list[_Follower] = []
        self._own: Mapping[str, str] = {}
        self._defaults: Mapping[str, str] = {}
        self._effective: Mapping[str, str] = self._static
        self.follow(LogConfig.from_broker_configs, topics.set_defaults)

    @property
    def effective(self) -> Mapping[str, str]:
        """The value of each config that is set, by Kafka's names. Never changed: replaced."""
        return self._effective

    def follow(
        self,
        read: Callable[[Mapping[str, str]], S],
        take: Callable[[S], object],
        *,
        present: S | None = None,
        check: Callable[[S], object] | None = None,
        reread: Callable[[], object] | None = None,
    ) -> None:
        """Call ``take`` with the settings that ``read`` makes of all configs, now and when they change.

        ``present``: the settings that the part has already; ``take`` is called now only for other ones.
        ``read`` raises ConfigError for configs that cannot be; its settings can be compared. ``take`` may
        raise OSError and ConfigError. ``check`` raises ConfigError for other settings that ``take`` would
        refuse; AlterConfigs asks it. ``reread``: called when a client sets configs of this broker and the
        settings stay: files that they name may have changed. It raises ConfigError.
        """
        with self._applying:
            settings = read(self._effective)
            if present is None or settings != present:
                take(settings)
            self._followers.append(_Follower(read, take, settings, check, reread))

    # -- what ZooKeeper has

    def set_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        """Take the configs that are set for a topic. Raises ConfigError."""
        self._topics.set_topic_configs(topic, configs)

    def set_broker_configs(self, own: Mapping[str, str], defaults: Mapping[str, str]) -> None:
        """Take the dynamic configs of this broker and those of all; the parts follow. Raises ConfigError.

        Those that cannot be used are logged and left out. How far numbers of threads change is not checked:
        it was when they were set, and the broker may have missed a change between.
        """
        with self._applying:
            own = self.decoded(own, per_broker=True)
            defaults = self.decoded(defaults, per_broker=False)
            effective = {**self._static, **defaults, **own}
            settings = self._read(effective)
            changed = [
                name
                for name in sorted({*effective, *self._effective})
                if effective.get(name) != self._effective.get(name)
            ]
            self._own, self._defaults, self._effective = own, defaults, effective
            for name in changed:
                logger.info("broker %d: %s is %s now", self.id, name, _shown(name, effective.get(name)))
            for follower, new in zip(self._followers, settings, strict=True):
                if new != follower.settings:
                    follower.settings = new
                    self._let_take(follower)

    def _read(self, effective: Mapping[str, str]) -> list[Any]:
        """Return the settings of each part. Raises ConfigError for configs with which no broker starts."""
        BrokerSettings.of(effective)
        return [one.read(effective) for one in self._followers]

    def _let_take(self, follower: _Follower) -> None:
        try:
            follower.take(follower.settings)
        except (OSError, ConfigError) as error:
            logger.error("broker %d: changed configs have no effect: %s", self.id, error)

    # -- what AlterConfigs asks for

    def check_broker_configs(self, configs: Mapping[str, str], *, per_broker: bool) -> None:
        """Raise KafkaError (INVALID_REQUEST) for dynamic configs that this broker, or all, cannot have."""
        try:
            check_dynamic(configs, per_broker=per_broker)
            own, defaults = (configs, self._defaults) if per_broker else (self._own, configs)
            effective = {**self._static, **defaults, **own}
            settings = self._read(effective)
            self._check_change(effective)
            self._check_parts(settings)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None

    def _check_change(self, effective: Mapping[str, str]) -> None:
        """Raise ConfigError for a change that this broker cannot make while it runs."""
        for setting in _AT_START:
            if effective.get(setting.name) != self._effective.get(setting.name):
                raise ConfigError(f"{setting} cannot be changed while the broker runs: set it in its file")
        for threads in _THREADS:
            problem = _why_not_at_once(threads, self._effective, effective)
            if problem is not None:
                raise _refused(problem)
        for name, text in effective.items():
            # ``ListenerConnectionQuota.validateReconfiguration``: 0 is for files alone.
            _, base = listener_of(name)
            if base in _CONNECTIONS and text != self._effective.get(name) and int(text) == 0:
                raise _refused(f"Invalid {base} 0")
        before, after = (table.LOG_CLEANER_THREADS.of(configs) for configs in (self._effective, effective))
        if after < before // 2:
            raise _refused(
                f"Log cleaner threads cannot be reduced to less than half the current value {before}"
            )
        if after > before * 2:
            raise _refused(
                f"Log cleaner threads cannot be increased to more than double the current value {before}"
            )

        self._check_listeners(effective)

    def _check_listeners(self, effective: Mapping[str, str]) -> None:
        """Raise ConfigError for other configs of a listener than those that it can have while it is there.

        Source: ``DynamicListenerConfig.validateReconfiguration``.
        """
        for listener in self._listeners:
            before, after = (_fixed_of(listener, configs) for configs in (self._effective, effective))
            if before != after:
                raise _refused(
                    "Configs cannot be updated dynamically for existing listener "
                    f"ListenerName({listener}), restart broker or create a new listener for update"
                )

    def _check_parts(self, settings: Sequence[Any]) -> None:
        """Raise ConfigError for changed settings that their part refuses."""
        with self._applying:
            followers = list(self._followers)
        for follower, new in zip(followers, settings, strict=False):
            if follower.check is not None and new != follower.settings:
                try:
                    follower.check(new)
                except ConfigError as error:
                    raise _refused(str(error)) from None

    def decoded(self, configs: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
        """Return the dynamic configs of ZooKeeper that can be used, with passwords as they are."""
        found, problems = {}, []
        for name, text in configs.items():
            if per_broker and is_password(name):
                try:
                    found[name] = self._needed_encoder().decode(text)
                except ConfigError as error:
                    problems.append(f"{name}: {error}")
            else:
                found[name] = text
        found, refused = usable(found, per_broker=per_broker)
        for problem in (*problems, *refused):
            logger.error("broker %d: a dynamic config in ZooKeeper is not used: %s", self.id, problem)
        return found

    def encoded(self, configs: Mapping[str, str]) -> dict[str, str]:
        """Return dynamic configs as ZooKeeper gets them. Raises KafkaError (INVALID_CONFIG)."""
        try:
            return {
                name: self._needed_encoder().encode(text) if is_password(name) else text
                for name, text in configs.items()
            }
        except ConfigError as error:
            raise self._invalid_config(error) from None

    def encoded_again(self, configs: Mapping[str, str]) -> dict[str, str] | None:
        """Return configs whose passwords had the old secret with the present one; None without an old one."""
        if self._old_encoder is None or not any(map(is_password, configs)):
            return None
        again = dict(configs)
        for name in filter(is_password, configs):
            try:
                password = self._old_encoder.decode(configs[name])
            except ConfigError:
                # It has the present secret already, or ``decoded`` will say why it has not.
                continue
            again[name] = self._needed_encoder().encode(password)
        return again if again != configs else None

    def written(self, configs: Mapping[str, str]) -> None:
        """Let parts read their files again: a client has set this broker's configs.

        A part whose settings change reads them when ZooKeeper has the configs. Raises KafkaError
        (INVALID_CONFIG) for files that cannot be used.
        """
        effective = {**self._static, **self._defaults, **configs}
        with self._applying:
            followers = list(self._followers)
        try:
            for follower in followers:
                if follower.reread is not None and follower.read(effective) == follower.settings:
                    follower.reread()
        except ConfigError as error:
            raise self._invalid_config(error) from None

    def _invalid_config(self, error: ConfigError) -> KafkaError:
        return KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Invalid config value for resource ConfigResource(type=BROKER, name='{self.id}'): {error}",
        )

    def _needed_encoder(self) -> PasswordEncoder:
        if self._encoder is None:
            raise ConfigError("Password encoder secret not configured")
        return self._encoder


def _is_dynamic_only(name: str) -> bool:
    """Return whether a setting counts only where it is dynamic, and not in a file."""
    return name in table.DYNAMIC and name not in table.BROKERS


def _fixed_of(listener: str, configs: Mapping[str, str]) -> dict[str, str]:
    """Return the configs that a listener has for itself, without those that it can have anew."""
    prefix = f"listener.name.{listener.lower()}."
    return {
        name: text
        for name, text in configs.items()
        if name.startswith(prefix) and not changes_listener(name.removeprefix(prefix))
    }


def _encoders(static: Mapping[str, str]) -> tuple[PasswordEncoder | None, PasswordEncoder | None]:
    """Return what encodes passwords, and what decodes those of the old secret. Raises ConfigError."""
    try:
        return tuple(
            PasswordEncoder(
                static[secret.name],
                static.get(table.PASSWORD_ENCODER_KEYFACTORY_ALGORITHM.name),
                table.PASSWORD_ENCODER_CIPHER_ALGORITHM.of(static),
                table.PASSWORD_ENCODER_KEY_LENGTH.of(static),
                table.PASSWORD_ENCODER_ITERATIONS.of(static),
            )
            if secret.name in static
            else None
            for secret in (table.PASSWORD_ENCODER_SECRET, table.PASSWORD_ENCODER_OLD_SECRET)
        )  # type: ignore[return-value]
    except ConfigError as error:
        raise ConfigError(f"password.encoder.*: {error}") from None


def _why_not_at_once(setting: Setting[int], old: Mapping[str, str], new: Mapping[str, str]) -> str | None:
    """Return why a number of threads cannot change so far at once, as Kafka says it, or None."""
    before, after = setting.of(old), setting.of(new)
    if after == before:
        return None
    text = f"Dynamic thread count update validation failed for {setting}={after}, value should "
    if after < 1:
        return f"{text}be at least 1"
    if after < before // 2:
        return f"{text}be at least half the current value {before}"
    if after > before * 2:
        return f"{text}not be greater than double the current value {before}"
    return None


def _refused(problem: str) -> ConfigError:
    """Return the error of a value that a part refuses, in the words of Kafka, which quotes an exception."""
    return ConfigError(
        f"Invalid value org.apache.kafka.common.config.ConfigException: {problem} for configuration "
        "Invalid dynamic configuration"
    )


def _shown(name: str, text: str | None) -> str:
    if text is None:
        return "not set"
    row = row_of(name)
    return "hidden" if row is None or row.type.code == ConfigType.PASSWORD else text
