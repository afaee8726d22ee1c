"""The configs of topics and brokers as DescribeConfigs shows them: values, sources, and what is behind."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from itertools import dropwhile
from typing import Any, NamedTuple

from ctrlchan.config import table
from ctrlchan.config.dynamic import base_name, is_dynamic, row_of
from ctrlchan.config.setting import ConfigType, Setting
from ctrlchan.config.table import BROKERS, CONTROLLERS, SECURITY, TOPICS, UNSHOWN
from ctrlchan.config.values import parse_int
from ctrlchan.config.without_effect import INTERNAL, WITHOUT_EFFECT

__all__ = [
    "ConfigSource",
    "Configs",
    "DescribedConfig",
    "broker_configs",
    "broker_defaults",
    "broker_names",
    "effective_configs",
    "topic_configs",
    "topic_defaults",
]


class ConfigSource(IntEnum):
    """``DescribeConfigsResponse.ConfigSource``."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6


class Configs(NamedTuple):
    """Values of broker configs by name, and where they are set."""

    values: Mapping[str, str]
    source: ConfigSource


class DescribedConfig(NamedTuple):
    """A config with its value; ``synonyms``: (name, value, source) of the broker configs behind it."""

    name: str
    value: str | None
    type: ConfigType
    source: ConfigSource
    read_only: bool
    synonyms: tuple[tuple[str, str | None, ConfigSource], ...]

    @property
    def is_sensitive(self) -> bool:
        """Whether nobody is shown the value. As for Kafka, a config of unknown type may be a secret."""
        if self.source is ConfigSource.DYNAMIC_BROKER_LOGGER:
            return False
        return self.type in (ConfigType.UNKNOWN, ConfigType.PASSWORD)


#: Of brokers, beside ``BROKERS``.
_OTHERS: Mapping[str, Setting[Any]] = {
    **CONTROLLERS,
    **UNSHOWN,
    **SECURITY,
    **{name: one.setting for name, one in WITHOUT_EFFECT.items() if name not in BROKERS},
}
#: Shown only where they are set: settings that Kafka hides, that belong to its authorizer, or that are ours.
_HIDDEN = INTERNAL.union(
    one.name
    for one in (
        table.ALLOW_EVERYONE_IF_NO_ACL_FOUND,
        table.AUTHORIZER_ZOOKEEPER_SESSION_TIMEOUT_MS,
        table.AUTHORIZER_ZOOKEEPER_URL,
        table.CTRLCHAN_TRANSACTION_LATE_END_REFUSE,
        table.JAVA_SECURITY_AUTH_LOGIN_CONFIG,
        table.LOG_INITIAL_TASK_DELAY_MS,
        table.PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS,
        table.SSL_STORES_REFRESH_INTERVAL_MS,
        table.SUPER_USERS,
        table.ZOOKEEPER_SASL_CLIENT,
        table.ZOOKEEPER_SASL_CLIENTCONFIG,
    )
)
#: Broker settings in several units, each of which is shown.
_UNITS = [other.name for row in TOPICS.values() for other, _ in row.behind]
_SHOWN = tuple(dict.fromkeys((*BROKERS, *sorted({*_OTHERS, *_UNITS} - _HIDDEN))))
#: Defaults of the broker configs that have one, also of those that are shown only where they are set.
_DEFAULTS = Configs(
    {row.name: row.default for row in (*_OTHERS.values(), *BROKERS.values()) if row.default is not None},
    ConfigSource.DEFAULT,
)
#: Broker config -> those that are set in its place, in order.
_ALTERNATIVES: Mapping[str, tuple[str, ...]] = {
    one.name: tuple(other.name for other, _ in row.behind) for row in TOPICS.values() for one, _ in row.behind
}


def topic_configs() -> Iterable[DescribedConfig]:
    """Return the configs of a topic that has none of its own, of a broker with Kafka's defaults."""
    return effective_configs({}, ())


def effective_configs(own: Mapping[str, str], behind: Sequence[Configs]) -> Iterable[DescribedConfig]:
    """Yield every config of a topic with the value that counts, and all values behind it.

    ``own``: set for the topic. ``behind``: broker configs, those that count first.
    """
    values = topic_defaults(ChainMap(*(dict(one.values) for one in behind)).get)
    for name, row in TOPICS.items():
        synonyms: list[tuple[str, str | None, ConfigSource]] = []
        if name in own:
            synonyms.append((name, own[name], ConfigSource.TOPIC))
        if row.behind:
            synonyms += _values_of(row.behind[0][0].name, behind)
        value = own.get(name, values.get(name, row.default))
        source = synonyms[0][2] if synonyms else ConfigSource.DEFAULT
        yield DescribedConfig(name, value, row.type.code, source, False, tuple(synonyms))


def _values_of(name: str, behind: Sequence[Configs]) -> Iterable[tuple[str, str | None, ConfigSource]]:
    """Return the values of a broker config and of its alternatives; none unless its own counts first."""
    found = [
        (one, configs.values[one], configs.source)
        for configs in (*behind, _DEFAULTS)
        for one in _ALTERNATIVES.get(name, dict.fromkeys((name, base_name(name))))
        if one in configs.values
    ]
    return dropwhile(lambda synonym: synonym[0] != name, found)


def broker_names(topic_values: Mapping[str, str]) -> Mapping[str, str]:
    """Return values of topic configs under the names of the broker configs behind them."""
    return {
        row.behind[0][0].name: topic_values[name]
        for name, row in TOPICS.items()
        if row.behind and name in topic_values
    }


def broker_configs(
    static: Mapping[str, str],
    own: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
) -> Iterable[DescribedConfig]:
    """Yield the configs of a broker.

    By name: ``static`` are those that are set in its settings, ``own`` its dynamic ones, ``defaults`` the
    dynamic ones of all brokers. Those that are set and that Kafka does not know are at the end.
    """
    behind = (
        Configs(own or {}, ConfigSource.DYNAMIC_BROKER),
        Configs(defaults or {}, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        Configs(static, ConfigSource.STATIC_BROKER),
    )
    more = {name for configs in behind for name in configs.values}.difference(_SHOWN)
    for name in (*_SHOWN, *sorted(more)):
        value = next(
            (configs.values[name] for configs in (*behind, _DEFAULTS) if name in configs.values), None
        )
        yield _described(name, value, tuple(_values_of(name, behind)))


def broker_defaults(defaults: Mapping[str, str]) -> Iterable[DescribedConfig]:
    """Yield the dynamic configs of all brokers."""
    for name, value in sorted(defaults.items()):
        yield _described(name, value, ((name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER),))


def _described(
    name: str, value: str | None, synonyms: tuple[tuple[str, str | None, ConfigSource], ...]
) -> DescribedConfig:
    """Return a broker config. As Kafka, it shows no password, and no value of unknown type."""
    kind = _type_of(name)
    if kind in (ConfigType.UNKNOWN, ConfigType.PASSWORD):
        value, synonyms = None, tuple((one, None, source) for one, _, source in synonyms)
    source = synonyms[0][2] if synonyms else ConfigSource.DEFAULT
    return DescribedConfig(name, value, kind, source, not is_dynamic(name), synonyms)


def _type_of(name: str) -> ConfigType:
    """Return the type of a broker config, or of the config of all listeners that one listener has."""
    base = base_name(name)
    for rows in (BROKERS, _OTHERS):
        if base in rows:
            return rows[base].type.code
    row = row_of(name)
    return ConfigType.UNKNOWN if row is None else row.type.code


def topic_defaults(setting: Callable[[str], str | None]) -> Mapping[str, str]:
    """Return the topic configs that a broker's settings set, by topic config.

    ``setting`` returns a broker config, or None if it is not set. Raises ConfigError for a duration that is
    no number.
    """
    found: dict[str, str] = {}
    for topic, row in TOPICS.items():
        for broker, unit in row.behind:
            text = setting(broker.name)
            if text is None:
                continue
            if unit != 1:
                number = parse_int(broker.name, text)
                # -1: without a limit.
                text = str(number * unit if number >= 0 else -1)
            found[topic] = text
            break
    return found
