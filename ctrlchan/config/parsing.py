"""Values of settings by name, and the checks of what AlterConfigs and CreateTopics ask for.

Source: ``LogConfig.validate`` and ``DynamicBrokerConfig.validateConfigs`` (Kafka 3.9). Not checked: what
depends on a broker's own settings, such as how far the number of its threads may change at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ctrlchan.config.setting import Setting
from ctrlchan.config.table import (
    BROKERS,
    CONTROLLERS,
    DYNAMIC,
    MAX_COMPACTION_LAG_MS,
    MIN_COMPACTION_LAG_MS,
    REMOTE_STORAGE_ENABLE,
    SECURITY,
    TOPICS,
    UNSHOWN,
    without_listener,
)
from ctrlchan.errors import ConfigError, ErrorCode, KafkaError

__all__ = ["InvalidValueError", "check_broker_configs", "check_configs", "checked", "parse_setting"]


class InvalidValueError(KafkaError):
    """A config has a value that it cannot have: Kafka's ConfigException."""


def check_configs(configs: Mapping[str, str]) -> None:
    """Raise KafkaError (INVALID_CONFIG) for the first config of a topic that Kafka refuses.

    InvalidValueError: its value cannot be.
    """
    for name in configs:
        if name not in TOPICS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    try:
        for name, text in configs.items():
            TOPICS[name].parse(text)
    except ConfigError as refused:
        raise InvalidValueError(ErrorCode.INVALID_CONFIG, str(refused)) from None
    if REMOTE_STORAGE_ENABLE.of(configs):
        raise InvalidValueError(
            ErrorCode.INVALID_CONFIG,
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote "
            "log storage.",
        )
    lags = MIN_COMPACTION_LAG_MS, MAX_COMPACTION_LAG_MS
    if all(lag.name in configs for lag in lags):
        least, most = (lag.of(configs) for lag in lags)
        if least > most:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"conflict topic config setting {lags[0]} ({least}) > {lags[1]} ({most})",
            )


def check_broker_configs(configs: Mapping[str, str]) -> None:
    """Raise KafkaError (INVALID_REQUEST) for the first dynamic config of brokers that is refused.

    What Kafka allows for one broker only is refused: listeners, TLS, SASL, passwords. So are configs that
    Kafka does not know, which brokers leave to their plug-ins.
    """
    unknown = [name for name in configs if without_listener(name) not in DYNAMIC]
    if unknown:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Cannot update these configs dynamically through the controller: {', '.join(unknown)}",
        )
    try:
        for name, text in configs.items():
            parse_setting(name, text)
    except ConfigError as refused:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(refused)) from None


def parse_setting(name: str, text: str) -> Any:
    """Return the value of a setting of a topic, a broker or a listener. Raises ConfigError.

    KeyError: the table does not have the setting.
    """
    return _row(without_listener(name)).parse(text, name)


def checked(name: str, text: str) -> str:
    """Return the text of a setting that ``parse_setting`` takes. Raises ConfigError."""
    parse_setting(name, text)
    return text


def _row(name: str) -> Setting[Any]:
    for rows in (BROKERS, DYNAMIC, TOPICS, UNSHOWN, SECURITY, CONTROLLERS):
        if name in rows:
            return rows[name]
    raise KeyError(name)
