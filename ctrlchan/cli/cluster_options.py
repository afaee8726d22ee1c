"""The options of ``ctrlchan cluster`` that have a form of their own: settings, topics, listeners."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import typer

from ctrlchan.cli.limits import MAX_INT32
from ctrlchan.config import table

__all__ = ["Topic", "read_advertised", "read_listeners", "read_settings", "read_topic"]

#: Settings of a file that the command's own options set.
_OF_OPTIONS: Final = frozenset(
    row.name
    for row in (
        table.ADVERTISED_LISTENERS,
        table.BROKER_ID,
        table.BROKER_RACK,
        table.INTER_BROKER_LISTENER_NAME,
        table.LISTENER_SECURITY_PROTOCOL_MAP,
        table.LISTENERS,
        table.LOG_DIR,
        table.LOG_DIRS,
        table.SECURITY_INTER_BROKER_PROTOCOL,
        table.ZOOKEEPER_CONNECT,
        table.ZOOKEEPER_SESSION_TIMEOUT_MS,
    )
)


class Topic(NamedTuple):
    """A topic to create. For numbers that are None the brokers' settings count."""

    name: str
    partitions: int | None
    replication_factor: int | None


def read_topic(text: str) -> Topic:
    """Return a topic that is written NAME[:PARTITIONS[:REPLICAS]]. Raises BadParameter."""
    found = re.fullmatch(r"([^:]+)(?::(\d+)(?::(\d+))?)?", text)
    numbers = [None if one is None else int(one) for one in found.groups()[1:]] if found else [0]
    if found is None or any(one is not None and not 1 <= one <= MAX_INT32 for one in numbers):
        raise typer.BadParameter(
            f"{text!r} is not NAME, NAME:PARTITIONS or NAME:PARTITIONS:REPLICAS", param_hint="--topic"
        )
    return Topic(found[1], *numbers)


def read_settings(file: Path | None, given: Sequence[str], warn: Callable[[str], object]) -> dict[str, str]:
    """Return the settings of a file and those of ``-c``, which win. Raises BadParameter, ConfigError.

    ``warn``: called with a line for each key of the file that has no effect here.
    """
    from ctrlchan.config.names import names_without_effect
    from ctrlchan.launch.configs import check_names
    from ctrlchan.text import printable

    settings: dict[str, str] = {}
    if file is not None:
        from ctrlchan.config.properties_file import PropertiesFile

        read = PropertiesFile.read(file)
        without_effect = _OF_OPTIONS | set(names_without_effect(read.entries))
        for key in read.entries:
            value = read.value(key)
            if key in without_effect:
                warn(f"warning: {file}: {printable(key)} has no effect")
            elif value is not None:
                settings[key] = value
    chosen = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="-c")
        if name.strip() in _OF_OPTIONS:
            raise typer.BadParameter(f"{name.strip()} is set by options of this command", param_hint="-c")
        chosen[name.strip()] = value.strip()
    check_names(chosen)
    return settings | chosen


def read_listeners(given: Sequence[str]) -> dict[str, str]:
    """Return HOST:PORT by the name of a listener, of texts NAME=HOST:PORT. Raises BadParameter."""
    found = {}
    for text in given:
        name, equals, address = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{text!r} is not NAME=HOST:PORT", param_hint="--listener")
        found[name] = address
    return found


def read_advertised(given: Sequence[str], listener: str) -> dict[str, str]:
    """Return HOST:PORT by the name of a listener, of texts [NAME=]HOST:PORT; ``listener``: without a name."""
    return dict(_named(text, listener) for text in given)


def _named(text: str, listener: str) -> tuple[str, str]:
    name, equals, address = text.partition("=")
    return (name, address) if equals else (listener, text)
