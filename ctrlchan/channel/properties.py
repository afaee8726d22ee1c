"""A broker's ``server.properties`` as settings of a channel, under Kafka's own names.

A ZooKeeper-mode controller is a broker and takes its settings from the same file. Settings that are not in
``_PLAIN`` and have nothing to do with listeners, TLS or SASL are skipped. Those of TLS and SASL are looked
for first with the prefix of the listener that the channel uses (``listener.name.<name>.``, in small letters),
then without it.

The syntax is that of ``properties_file``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, Final

from ctrlchan.config import table
from ctrlchan.config.properties_file import PropertiesFile
from ctrlchan.config.setting import Setting
from ctrlchan.errors import ConfigError
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.security.client_properties import client_security
from ctrlchan.security.listener_properties import ListenerProperties

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
    return key in _NAMES or key.startswith(_SECURITY_PREFIXES)


def _seconds(milliseconds: int) -> float:
    return milliseconds / 1000


#: Setting -> argument, and what makes its value of the setting's.
_PLAIN: Final[Mapping[Setting[Any], tuple[str, Callable[[Any], Any] | None]]] = {
    table.BROKER_ID: ("controller_id", None),
    table.INTER_BROKER_PROTOCOL_VERSION: ("inter_broker_protocol", None),
    table.CONTROLLER_SOCKET_TIMEOUT_MS: ("socket_timeout", _seconds),
    table.REQUEST_TIMEOUT_MS: ("request_timeout", _seconds),
    table.SOCKET_CONNECTION_SETUP_TIMEOUT_MS: ("connection_setup_timeout", _seconds),
    table.SOCKET_CONNECTION_SETUP_TIMEOUT_MAX_MS: ("connection_setup_timeout_max", _seconds),
    table.SOCKET_REQUEST_MAX_BYTES: ("max_request_bytes", None),
}
_NAMES: Final = {
    row.name
    for row in (
        *_PLAIN,
        table.CONTROL_PLANE_LISTENER_NAME,
        table.INTER_BROKER_LISTENER_NAME,
        table.LISTENER_SECURITY_PROTOCOL_MAP,
        table.SECURITY_INTER_BROKER_PROTOCOL,
    )
}
_SECURITY_PREFIXES: Final = ("listener.name.", "ssl.", "sasl.")


def channel_settings(file: PropertiesFile, listener: str | None = None) -> dict[str, Any]:
    """Return what ``settings_of`` returns, from a file that has been read."""
    settings = file.arguments(_PLAIN)
    if settings.get("connection_setup_timeout", 0) > 30:
        settings.setdefault("connection_setup_timeout_max", settings["connection_setup_timeout"])
    protocols, inter_broker = file.security_protocols(), file.inter_broker_listener()
    control_plane = listener or file.value(table.CONTROL_PLANE_LISTENER_NAME.name)
    used = control_plane or inter_broker
    if used not in protocols:
        key = table.CONTROL_PLANE_LISTENER_NAME if control_plane else table.INTER_BROKER_LISTENER_NAME
        file.refuse(key.name, f"{used!r} has no protocol in {table.LISTENER_SECURITY_PROTOCOL_MAP}")
    settings |= {
        "listener_name": control_plane,
        "inter_broker_listener": inter_broker,
        "security_protocol": protocols[used],
    }
    security = client_security(ListenerProperties(file, used), SecurityProtocol[protocols[used]])
    if security.tls is not None:
        settings["tls"] = security.tls
    if security.sasl is not None:
        settings["sasl"] = security.sasl
    return settings
