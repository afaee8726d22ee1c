"""A broker's ``server.properties`` as settings of a channel, under Kafka's own names.

A ZooKeeper-mode controller is a broker and takes its settings from the same file. Keys that are not in
``_PLAIN`` and have nothing to do with listeners, TLS or SASL are skipped. Keys of TLS and SASL are looked for
first with the prefix of the listener that the channel uses (``listener.name.<name>.``, in small letters),
then without it.

The syntax is that of ``properties_file``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, Final

from ctrlchan.channel.properties_file import LOGIN_MODULES, ListenerProperties, PropertiesFile
from ctrlchan.channel.wire.security import SaslSettings
from ctrlchan.config.values import parse_int, parse_long, parse_string
from ctrlchan.errors import ConfigError
from ctrlchan.protocol import request_versions

__all__ = ["channel_settings", "settings_of"]


def settings_of(
    source: str | PathLike[str] | Mapping[str, str], listener: str | None = None
) -> dict[str, Any]:
    """Return arguments for ``ChannelConfig``, without those that the file does not set.

    ``listener`` is used in the place of ``control.plane.listener.name``.
    """
    file = PropertiesFile.read(source)
    if not isinstance(source, Mapping) and not any(_is_known(key) for key in file.entries):
        raise ConfigError(f"{file.name}: no setting of a channel is in it (is this a server.properties?)")
    return channel_settings(file, listener)


def _is_known(key: str) -> bool:
    return key in _PLAIN or key in _LISTENER_KEYS or key.startswith(_SECURITY_PREFIXES)


def _positive(name: str, text: str) -> int:
    return parse_int(name, text, 1)


def _seconds(name: str, text: str) -> float:
    return parse_int(name, text, 1) / 1000


def _long_seconds(name: str, text: str) -> float:
    return parse_long(name, text, 1) / 1000


def _ibp(name: str, text: str) -> str:
    version = parse_string(name, text)
    try:
        request_versions(version)
    except ConfigError as unknown:
        raise ConfigError(f"{name}: {unknown}") from None
    return version


#: Kafka's key -> ours, and how its value is parsed.
_PLAIN: Final[Mapping[str, tuple[str, Callable[[str, str], Any]]]] = {
    "broker.id": ("controller_id", parse_int),
    "inter.broker.protocol.version": ("inter_broker_protocol", _ibp),
    "controller.socket.timeout.ms": ("socket_timeout", _seconds),
    "request.timeout.ms": ("request_timeout", _seconds),
    "socket.connection.setup.timeout.ms": ("connection_setup_timeout", _long_seconds),
    "socket.connection.setup.timeout.max.ms": ("connection_setup_timeout_max", _long_seconds),
    "socket.request.max.bytes": ("max_request_bytes", _positive),
}

_LISTENER_KEYS: Final = (
    "control.plane.listener.name",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "security.inter.broker.protocol",
)
_SECURITY_PREFIXES: Final = ("listener.name.", "ssl.", "sasl.")


def channel_settings(file: PropertiesFile, listener: str | None = None) -> dict[str, Any]:
    """Return what ``settings_of`` returns, from a file that has been read."""
    settings: dict[str, Any] = {}
    for key, (ours, parse) in _PLAIN.items():
        value = file.parse(key, parse)
        if value is not None:
            settings[ours] = value
    if settings.get("connection_setup_timeout", 0) > 30:
        settings.setdefault("connection_setup_timeout_max", settings["connection_setup_timeout"])
    protocols, inter_broker = file.security_protocols(), file.inter_broker_listener()
    control_plane = listener or file.value("control.plane.listener.name")
    used = control_plane or inter_broker
    if used not in protocols:
        key = "control.plane.listener.name" if control_plane else "inter.broker.listener.name"
        file.refuse(key, f"{used!r} has no protocol in listener.security.protocol.map")
    settings |= {
        "listener_name": control_plane,
        "inter_broker_listener": inter_broker,
        "security_protocol": protocols[used],
    }
    of_listener = ListenerProperties(file, used)
    if protocols[used].endswith("SSL"):
        settings["tls"] = of_listener.tls()
    if protocols[used].startswith("SASL"):
        settings["sasl"] = _sasl(of_listener, used)
    return settings


def _sasl(properties: ListenerProperties, listener: str) -> SaslSettings:
    key = "sasl.mechanism.inter.broker.protocol"
    mechanism = properties.value(key) or "GSSAPI"
    if mechanism not in LOGIN_MODULES:
        properties.refuse(key, f"{mechanism} is not {', '.join(LOGIN_MODULES)}")
    found = properties.jaas_options(mechanism)
    if found is None:
        key = f"{mechanism.lower()}.sasl.jaas.config"
        properties.refuse(key, f"it is missing, and {mechanism} needs it (a JVM's JAAS file is not read)")
    key, options = found
    try:
        return SaslSettings(
            mechanism=mechanism,
            username=options.get("username", ""),
            password=options.get("password", ""),
        )
    except ConfigError as problem:
        properties.refuse(key, str(problem))
