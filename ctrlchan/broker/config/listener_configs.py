"""The security of a broker's listeners, from its configs under Kafka's names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ctrlchan.config import table
from ctrlchan.config.properties_file import PropertiesFile
from ctrlchan.errors import ConfigError
from ctrlchan.protocol import SECURITY_PROTOCOLS, SecurityProtocol
from ctrlchan.security.client_properties import ClientSecurity, client_security
from ctrlchan.security.listener_properties import ListenerProperties, listener_security
from ctrlchan.security.listener_security import ListenerSecurity
from ctrlchan.security.settings import TlsSettings

__all__ = ["client_security_of", "control_plane_problem", "security_of", "security_protocols", "tls_of"]


def security_protocols(configs: Mapping[str, str], listeners: Iterable[str]) -> dict[str, SecurityProtocol]:
    """Return the security protocol of each listener (``listener.security.protocol.map``).

    Without that setting a listener whose name is no security protocol is PLAINTEXT. Raises ConfigError for a
    listener that the setting leaves out.
    """
    protocols = PropertiesFile.read(configs).security_protocols()
    found = {}
    for name in listeners:
        if name in protocols:
            found[name] = SecurityProtocol[protocols[name]]
        elif table.LISTENER_SECURITY_PROTOCOL_MAP.name in configs:
            raise ConfigError(f"{table.LISTENER_SECURITY_PROTOCOL_MAP}: {name!r} has no protocol in it")
        else:
            found[name] = SecurityProtocol[name] if name in SECURITY_PROTOCOLS else SecurityProtocol.PLAINTEXT
    return found


def control_plane_problem(name: str, listeners: Sequence[str], of_brokers: str) -> str | None:
    """Return why a listener cannot be the controller's own (KIP-291), or None.

    ``listeners``: the advertised ones. ``of_brokers``: the one that other brokers connect to.
    """
    if name not in listeners:
        return f"must be one of the advertised listeners: {', '.join(listeners)}"
    if name == of_brokers:
        return "must be another listener than the one that brokers connect to"
    return None


def security_of(configs: Mapping[str, str], listener: str, protocol: SecurityProtocol) -> ListenerSecurity:
    """Return the security of one listener. Raises ConfigError, naming the key."""
    security = listener_security(ListenerProperties(PropertiesFile.read(configs), listener), protocol)
    security.check(listener, protocol)
    return security


def tls_of(configs: Mapping[str, str], listener: str) -> TlsSettings:
    """Return the TLS settings of a listener that has TLS. Raises ConfigError, naming the key."""
    tls = ListenerProperties(PropertiesFile.read(configs), listener).tls()
    ListenerSecurity(tls=tls).check(listener, SecurityProtocol.SSL)
    return tls


def client_security_of(
    configs: Mapping[str, str], listener: str, protocol: SecurityProtocol
) -> ClientSecurity:
    """Return what connections to other brokers' listeners of this name need. Raises ConfigError."""
    return client_security(ListenerProperties(PropertiesFile.read(configs), listener), protocol)
