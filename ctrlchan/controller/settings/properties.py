"""A broker's ``server.properties`` as settings of a controller, under Kafka's own names.

A ZooKeeper-mode controller is a broker, so one file serves both. Settings that are not named here, in
``listener_properties`` or in ``channel.properties`` are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, Final

from ctrlchan.channel import ChannelConfig
from ctrlchan.channel.properties import channel_settings
from ctrlchan.config import table
from ctrlchan.config.described import topic_defaults
from ctrlchan.config.parsing import checked
from ctrlchan.config.properties_file import PropertiesFile
from ctrlchan.config.setting import Setting
from ctrlchan.errors import ConfigError
from ctrlchan.server.delegation_tokens.settings import DelegationTokenSettings
from ctrlchan.server.listener_settings import listener_settings
from ctrlchan.zookeeper.client import check_servers
from ctrlchan.zookeeper.security_properties import zookeeper_security

__all__ = ["listener_settings", "settings_of"]


def settings_of(
    source: str | PathLike[str] | Mapping[str, str], listener: str | None = None
) -> dict[str, Any]:
    """Return arguments for ``ControllerConfig``, without those that the file does not set.

    ``listener``: the name of the brokers' listener to connect to, in the place of
    ``control.plane.listener.name``. Raises ConfigError with file, line and key.
    """
    file = PropertiesFile.read(source)
    settings = file.arguments(_PLAIN)
    settings |= {f"zookeeper_{name}": value for name, value in zookeeper_security(file).items()}
    channel = channel_settings(file, listener)
    if "controller_id" in channel:
        settings["controller_id"] = channel["controller_id"]
    settings["channel"] = ChannelConfig(**channel)
    settings |= listener_settings(file)
    authorizer = _authorizer(file)
    if authorizer:
        settings["authorizer"] = authorizer
    if policies := _policies(file):
        settings["policies"] = policies
    tokens = _delegation_tokens(file)
    if tokens.are_enabled:
        settings["delegation_tokens"] = tokens
    defaults = dict(topic_defaults(lambda key: file.parse(key, checked)))
    if defaults:
        settings["topic_defaults"] = defaults
    return settings


# -- plain values


def _seconds(milliseconds: int) -> float:
    return milliseconds / 1000


def _servers(text: str) -> str:
    try:
        check_servers(text)
    except ConfigError as problem:
        raise ConfigError(f"{table.ZOOKEEPER_CONNECT}: {problem}") from None
    return text


#: Setting -> argument, and what makes its value of the setting's.
_PLAIN: Final[Mapping[Setting[Any], tuple[str, Callable[[Any], Any] | None]]] = {
    table.ZOOKEEPER_CONNECT: ("zookeeper", _servers),
    table.ZOOKEEPER_SESSION_TIMEOUT_MS: ("zookeeper_session_timeout", _seconds),
    table.ZOOKEEPER_CONNECTION_TIMEOUT_MS: ("zookeeper_connection_timeout", _seconds),
    table.BROKER_RACK: ("rack", None),
    table.DELETE_TOPIC_ENABLE: ("delete_topics", None),
    table.UNCLEAN_LEADER_ELECTION_ENABLE: ("unclean_leader_election", None),
    table.AUTO_LEADER_REBALANCE_ENABLE: ("auto_leader_rebalance", None),
    table.LEADER_IMBALANCE_PER_BROKER_PERCENTAGE: ("leader_imbalance_percentage", None),
    table.LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS: ("leader_imbalance_check_interval", None),
    table.NUM_PARTITIONS: ("num_partitions", None),
    table.DEFAULT_REPLICATION_FACTOR: ("default_replication_factor", None),
}


# -- the authorizer


#: Settings of Kafka's own authorizer. One of the user's own gets the whole file.
_AUTHORIZER: Final[tuple[Setting[Any], ...]] = (
    table.SUPER_USERS,
    table.ALLOW_EVERYONE_IF_NO_ACL_FOUND,
    table.AUTHORIZER_ZOOKEEPER_URL,
    table.AUTHORIZER_ZOOKEEPER_SESSION_TIMEOUT_MS,
)


def _authorizer(file: PropertiesFile) -> dict[str, str]:
    """Return what an authorizer is configured with; nothing if the file names none."""
    if not file.read_setting(table.AUTHORIZER_CLASS_NAME):
        return {}
    file.arguments({setting: (setting.name, None) for setting in _AUTHORIZER})
    return {key: value for key in file.entries if (value := file.value(key)) is not None}


def _policies(file: PropertiesFile) -> dict[str, str]:
    """Return what policies are configured with; nothing if the file names none."""
    names = table.CREATE_TOPIC_POLICY_CLASS_NAME.name, table.ALTER_CONFIG_POLICY_CLASS_NAME.name
    if not any(map(file.value, names)):
        return {}
    return {key: value for key in file.entries if (value := file.value(key)) is not None}


# -- delegation tokens


_DELEGATION_TOKENS: Final[tuple[Setting[Any], ...]] = (
    table.DELEGATION_TOKEN_SECRET_KEY,
    table.DELEGATION_TOKEN_MASTER_KEY,
    table.DELEGATION_TOKEN_MAX_LIFETIME_MS,
    table.DELEGATION_TOKEN_EXPIRY_TIME_MS,
    table.DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS,
)


def _delegation_tokens(file: PropertiesFile) -> DelegationTokenSettings:
    """Return the settings of delegation tokens."""
    file.arguments({setting: (setting.name, None) for setting in _DELEGATION_TOKENS})
    values = {one.name: file.value(one.name, empty=True) for one in _DELEGATION_TOKENS}
    return DelegationTokenSettings.of({name: text for name, text in values.items() if text is not None})
