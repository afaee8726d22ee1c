"""The setting ``message.format.version``: a broker writes format 2 alone.

Kafka reads the setting where the inter-broker protocol is older than 3.0, and then writes records of
formats 0 and 1, too (``KafkaConfig.validateValues``, ``LogConfig.MessageFormatVersion`` of Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ctrlchan.config import table
from ctrlchan.errors import ConfigError
from ctrlchan.protocol import ibp_at_least

__all__ = ["refuse_old_format", "topic_warning"]

#: From this version on records have format 2.
_FORMAT_2: Final = "0.11.0-IV0"
#: From this inter-broker protocol on the setting is ignored.
_IGNORED: Final = "3.0-IV1"
_TOPICS: Final = table.MESSAGE_FORMAT_VERSION
#: The broker's setting, which is the default of topics.
_BROKERS: Final = _TOPICS.behind[0][0]


def refuse_old_format(configs: Mapping[str, str]) -> None:
    """Raise ConfigError where Kafka would write records of format 0 or 1 for these configs of a broker."""
    protocol = table.INTER_BROKER_PROTOCOL_VERSION.of(configs)
    if ibp_at_least(protocol, _IGNORED):
        return
    version = _BROKERS.of(configs)
    if not ibp_at_least(version, _FORMAT_2):
        raise ConfigError(
            f"{_BROKERS.name}: {version}: records of formats 0 and 1 are read, and not written: "
            f"it must be 0.11.0 or later"
        )
    if not ibp_at_least(protocol, _FORMAT_2):
        raise ConfigError(
            f"{_BROKERS.name} {version} can only be used when {table.INTER_BROKER_PROTOCOL_VERSION} "
            f"is set to version 0.11.0 or higher"
        )


def topic_warning(topic: str, own: Mapping[str, str], protocol: str) -> str | None:
    """Return the line for a topic whose own configs have an old format, else None.

    ``protocol``: the inter-broker protocol of the broker. A version that nobody knows has no line.
    """
    try:
        version = _TOPICS.of(own)
    except ConfigError:
        return None
    if ibp_at_least(version, _FORMAT_2):
        return None
    because = (
        f"the inter-broker protocol version `{protocol}` is greater or equal than 3.0"
        if ibp_at_least(protocol, _IGNORED)
        else "records of formats 0 and 1 are read, and not written"
    )
    ignored = f"Topic configuration {_TOPICS.name} with value `{version}` is ignored for `{topic}`"
    return f"{ignored} because {because}"
