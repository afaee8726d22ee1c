"""Checks of values that no range describes, for the column ``check`` of the table of settings.

Each takes the name and the value of a setting and raises ConfigError with Kafka's message.
"""

from __future__ import annotations

import re
from typing import Final

from ctrlchan.config.values import invalid_value
from ctrlchan.errors import ConfigError
from ctrlchan.protocol import request_versions

__all__ = [
    "check_gzip_level",
    "check_inter_broker_protocol",
    "check_message_format",
    "check_retention",
    "check_throttled_replicas",
]

_REPLICA: Final = re.compile(r"[0-9]+:[0-9]+")


def check_gzip_level(name: str, level: int) -> None:
    """Allow the levels of gzip, and -1 for its default."""
    if level != -1 and not 1 <= level <= 9:
        raise invalid_value(name, level, "Value must be between 1 and 9 or equal to -1")


def check_retention(name: str, time: int) -> None:
    """Allow every time but 0."""
    if time == 0:
        raise invalid_value(name, time, "Value must be at least 1, or negative for no limit")


def check_throttled_replicas(name: str, values: list[str]) -> None:
    """Allow a list of replicas, and ``*`` alone."""
    if values != ["*"] and not all(map(_REPLICA.fullmatch, values)):
        raise invalid_value(
            name,
            f"[{', '.join(values)}]",
            f"{name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
        )


def check_message_format(name: str, version: str) -> None:
    """Allow the versions of message formats."""
    try:
        request_versions(version)
    except ConfigError:
        raise invalid_value(name, version, f"Version {version} is not a valid version") from None


def check_inter_broker_protocol(name: str, version: str) -> None:
    """Allow the versions of the inter-broker protocol; the error names the nearest ones."""
    try:
        request_versions(version)
    except ConfigError as unknown:
        raise ConfigError(f"{name}: {unknown}") from None
