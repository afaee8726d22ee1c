"""A broker's ``server.properties`` as settings of a controller, under Kafka's own names.

A ZooKeeper-mode controller is a broker, so one file serves both. Keys that are not named here, in
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
from ctrlchan.config.definitions import topic_defaults
from ctrlchan.config.parsing import checked
from ctrlchan.config.values import parse_boolean, parse_int, parse_long, parse_string
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
    settings: dict[str, Any] = {}
    for key, (ours, parse) in _PLAIN.items():
        value = file.parse(key, parse)
        if value is not None:
            settings[ours] = value
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


def _positive(name: str, text: str) -> int:
    return parse_int(name, text, 1)


def _seconds(name: str, text: str) -> float:
    return parse_int(name, text, 1) / 1000


def _servers(name: str, text: str) -> str:
    try:
        check_servers(text)
    except ConfigError as problem:
        raise ConfigError(f"{name}: {problem}") from None
    return text


#: Kafka's key -> ours, and how its value is parsed.
_PLAIN: Final[Mapping[str, tuple[str, Callable[[str, str], Any]]]] = {
    "zookeeper.connect": ("zookeeper", _servers),
    "zookeeper.session.timeout.ms": ("zookeeper_session_timeout", _seconds),
    "zookeeper.connection.timeout.ms": ("zookeeper_connection_timeout", _seconds),
    "zookeeper.set.acl": ("zookeeper_set_acl", parse_boolean),
    "broker.rack": ("rack", parse_string),
    "delete.topic.enable": ("delete_topics", parse_boolean),
    "unclean.leader.election.enable": ("unclean_leader_election", parse_boolean),
    "auto.leader.rebalance.enable": ("auto_leader_rebalance", parse_boolean),
    "leader.imbalance.per.broker.percentage": (
        "leader_imbalance_percentage",
        lambda name, text: parse_int(name, text, 0),
    ),
    "leader.imbalance.check.interval.seconds": (
        "leader_imbalance_check_interval",
        lambda name, text: parse_long(name, text, 1),
    ),
    "num.partitions": ("num_partitions", _positive),
    "default.replication.factor": (
        "default_replication_factor",
        lambda name, text: parse_int(name, text, 1, 2**15 - 1),
    ),
}


# -- ZooKeeper


def _zookeeper_tls(file: PropertiesFile) -> TlsSettings | None:
    """Return the TLS settings of the session (``zookeeper.ssl.*``); None: it is not enabled."""
    if not file.parse("zookeeper.ssl.client.enable", parse_boolean):
        return None
    stores = {}
    for name in ("truststore", "keystore"):
        key = f"zookeeper.ssl.{name}.location"
        stores[name] = location = file.value(key)
        kind = file.value(f"zookeeper.ssl.{name}.type") or ("PEM" if location is None else _kind_of(location))
        if kind.upper() != "PEM":
            file.refuse(key, f"only PEM files can be used for ZooKeeper, not {kind}")
    algorithm = file.value("zookeeper.ssl.endpoint.identification.algorithm", empty=True)
    return TlsSettings(
        ca=stores["truststore"],
        certificate=stores["keystore"],
        key=stores["keystore"],
        key_password=file.value("zookeeper.ssl.keystore.password"),
        verify_host=algorithm is None or algorithm.lower() == "https",
    )


def _kind_of(location: str) -> str:
    """Return the type that Kafka takes a store for by the end of its name."""
    return {".jks": "JKS", ".p12": "PKCS12", ".pfx": "PKCS12"}.get(PurePath(location).suffix, "PEM")


# -- listeners


def listener_settings(file: PropertiesFile, default: str | None = None) -> dict[str, Any]:
    """Return ``listeners``, ``advertised_listeners`` and ``listener_security``, if there are listeners.

    ``default``: listeners of a file that has none.
    """
    text = file.value("listeners") or default
    if text is None:
        return {}
    protocols = file.security_protocols()
    listeners = _endpoints(file, "listeners", text, protocols)
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
    advertised = file.value("advertised.listeners")
    if advertised is not None:
        endpoints = _endpoints(file, "advertised.listeners", advertised, protocols)
        missing = {one.listener for one in listeners} ^ {one.listener for one in endpoints}
        if missing:
            file.refuse("advertised.listeners", f"{sorted(missing)[0]} is not in both lists of listeners")
        for endpoint in endpoints:
            if endpoint.host in ("", *_ANY_HOSTS):
                file.refuse("advertised.listeners", f"{endpoint} is no address that others can connect to")
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
            file.refuse(key, f"{name!r} has no protocol in listener.security.protocol.map")
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
