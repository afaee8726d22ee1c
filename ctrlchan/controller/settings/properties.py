"""A broker's ``server.properties`` as settings of a controller, under Kafka's own names.

A ZooKeeper-mode controller is a broker, so one file serves both. Settings that are not named here, in
``listener_properties`` or in ``channel.properties`` are skipped.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import PurePath
from typing import Any, Final

from ctrlchan.channel import ChannelConfig
from ctrlchan.channel.properties import channel_settings
from ctrlchan.channel.properties_file import ListenerProperties, PropertiesFile
from ctrlchan.config import table
from ctrlchan.config.described import topic_defaults
from ctrlchan.config.parsing import checked
from ctrlchan.config.setting import Setting
from ctrlchan.controller.settings.listener_properties import listener_security
from ctrlchan.controller.settings.listener_security import ListenerSecurity
from ctrlchan.errors import ConfigError, InvalidStateError
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.state import Endpoint
from ctrlchan.state.brokers import parse_host_port
from ctrlchan.zookeeper.client import check_servers
from ctrlchan.zookeeper.settings import TlsSettings

__all__ = ["listener_settings", "settings_of"]

#: Every address of the machine: what a listener without a host listens on.
_ANY_HOST: Final = "0.0.0.0"
_ANY_HOSTS: Final = (_ANY_HOST, "::")


def settings_of(
    source: str | PathLike[str] | Mapping[str, str], listener: str | None = None
) -> dict[str, Any]:
    """Return arguments for ``ControllerConfig``, without those that the file does not set.

    ``listener``: the name of the brokers' listener to connect to, in the place of
    ``control.plane.listener.name``. Raises ConfigError with file, line and key.
    """
    file = PropertiesFile.read(source)
    settings = file.arguments(_PLAIN)
    tls = _zookeeper_tls(file)
    if tls is not None:
        settings["zookeeper_tls"] = tls
    channel = channel_settings(file, listener)
    if "controller_id" in channel:
        settings["controller_id"] = channel["controller_id"]
    settings["channel"] = ChannelConfig(**channel)
    settings |= listener_settings(file)
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
    table.ZOOKEEPER_SET_ACL: ("zookeeper_set_acl", None),
    table.BROKER_RACK: ("rack", None),
    table.DELETE_TOPIC_ENABLE: ("delete_topics", None),
    table.UNCLEAN_LEADER_ELECTION_ENABLE: ("unclean_leader_election", None),
    table.AUTO_LEADER_REBALANCE_ENABLE: ("auto_leader_rebalance", None),
    table.LEADER_IMBALANCE_PER_BROKER_PERCENTAGE: ("leader_imbalance_percentage", None),
    table.LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS: ("leader_imbalance_check_interval", None),
    table.NUM_PARTITIONS: ("num_partitions", None),
    table.DEFAULT_REPLICATION_FACTOR: ("default_replication_factor", None),
}


# -- ZooKeeper


def _zookeeper_tls(file: PropertiesFile) -> TlsSettings | None:
    """Return the TLS settings of the session (``zookeeper.ssl.*``), or None if TLS is not enabled."""
    if not file.read_setting(table.ZOOKEEPER_SSL_CLIENT_ENABLE):
        return None
    truststore = _pem_file(file, table.ZOOKEEPER_SSL_TRUSTSTORE_LOCATION, table.ZOOKEEPER_SSL_TRUSTSTORE_TYPE)
    keystore = _pem_file(file, table.ZOOKEEPER_SSL_KEYSTORE_LOCATION, table.ZOOKEEPER_SSL_KEYSTORE_TYPE)
    algorithm = file.value(table.ZOOKEEPER_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM.name, empty=True)
    return TlsSettings(
        ca=truststore,
        certificate=keystore,
        key=keystore,
        key_password=file.value(table.ZOOKEEPER_SSL_KEYSTORE_PASSWORD.name),
        verify_host=algorithm is None or algorithm.lower() == "https",
    )


def _pem_file(file: PropertiesFile, location: Setting[str], kind: Setting[str]) -> str | None:
    """Return where a store is. Raises ConfigError for one that is not of type PEM."""
    path = file.value(location.name)
    given = file.value(kind.name) or ("PEM" if path is None else _kind_of(path))
    if given.upper() != "PEM":
        file.refuse(location.name, f"only PEM files can be used for ZooKeeper, not {given}")
    return path


def _kind_of(location: str) -> str:
    """Return the type that Kafka takes a store for by the end of its name."""
    return {".jks": "JKS", ".p12": "PKCS12", ".pfx": "PKCS12"}.get(PurePath(location).suffix, "PEM")


# -- listeners


def listener_settings(file: PropertiesFile, default: str | None = None) -> dict[str, Any]:
    """Return ``listeners``, ``advertised_listeners`` and ``listener_security``, if there are listeners.

    ``default``: listeners of a file that has none.
    """
    text = file.value(table.LISTENERS.name) or default
    if text is None:
        return {}
    protocols = file.security_protocols()
    listeners = _endpoints(file, table.LISTENERS.name, text, protocols)
    settings: dict[str, Any] = {
        "listeners": tuple(
            endpoint if endpoint.host else _with_host(endpoint, _ANY_HOST) for endpoint in listeners
        ),
        "listener_security": {
            endpoint.listener: security
            for endpoint in listeners
            if (security := _security(file, endpoint)) is not None
        },
    }
    key = table.ADVERTISED_LISTENERS.name
    advertised = file.value(key)
    if advertised is not None:
        endpoints = _endpoints(file, key, advertised, protocols)
        missing = {one.listener for one in listeners} ^ {one.listener for one in endpoints}
        if missing:
            file.refuse(key, f"{sorted(missing)[0]} is not in both lists of listeners")
        for endpoint in endpoints:
            if endpoint.host in ("", *_ANY_HOSTS):
                file.refuse(key, f"{endpoint} is no address that others can connect to")
        settings["advertised_listeners"] = tuple(endpoints)
    elif any(endpoint.host in ("", *_ANY_HOSTS) for endpoint in listeners):
        own = platform.node() or "localhost"
        settings["advertised_listeners"] = tuple(
            _with_host(endpoint, own) if endpoint.host in ("", *_ANY_HOSTS) else endpoint
            for endpoint in listeners
        )
    return settings


def _security(file: PropertiesFile, endpoint: Endpoint) -> ListenerSecurity | None:
    if endpoint.security_protocol is SecurityProtocol.PLAINTEXT:
        return None
    return listener_security(ListenerProperties(file, endpoint.listener), endpoint.security_protocol)


def _endpoints(
    file: PropertiesFile, key: str, text: str, protocols: Mapping[str, str]
) -> tuple[Endpoint, ...]:
    """Parse ``NAME://HOST:PORT,…``; a host may be empty."""
    found: dict[str, Endpoint] = {}
    for part in (part.strip() for part in text.split(",")):
        name, separator, address = part.partition("://")
        if not separator or not name:
            file.refuse(key, f"{part!r} is not NAME://HOST:PORT")
        if name not in protocols:
            file.refuse(key, f"{name!r} has no protocol in {table.LISTENER_SECURITY_PROTOCOL_MAP}")
        if name in found:
            file.refuse(key, f"{name!r} is listed twice")
        try:
            host, port = parse_host_port(address if not address.startswith(":") else f"any{address}")
        except InvalidStateError as problem:
            file.refuse(key, str(problem))
        if address.startswith(":"):
            host = ""
        found[name] = Endpoint(name, SecurityProtocol[protocols[name]], host, port)
    return tuple(found.values())


def _with_host(endpoint: Endpoint, host: str) -> Endpoint:
    return Endpoint(endpoint.listener, endpoint.security_protocol, host, endpoint.port)
