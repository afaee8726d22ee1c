"""The listeners of a broker or a controller, with their security, as ``server.properties`` has them."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any, Final

from ctrlchan.config import table
from ctrlchan.config.properties_file import PropertiesFile
from ctrlchan.errors import ConfigError, InvalidStateError
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.security.listener_properties import ListenerProperties, listener_security
from ctrlchan.security.listener_security import ListenerSecurity
from ctrlchan.state import Endpoint
from ctrlchan.state.brokers import parse_host_port

__all__ = ["listener_settings"]

#: Every address of the machine: what a listener without a host listens on.
_ANY_HOST: Final = "0.0.0.0"
_ANY_HOSTS: Final = (_ANY_HOST, "::")


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
    security = listener_security(ListenerProperties(file, endpoint.listener), endpoint.security_protocol)
    if security == ListenerSecurity():
        return None
    try:
        security.check(endpoint.listener, endpoint.security_protocol)
    except ConfigError as problem:
        file.refuse(table.LISTENERS.name, str(problem))
    return security


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
