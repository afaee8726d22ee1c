"""The keys of ``server.properties`` with which a node connects to a listener: its own side as a client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ctrlchan.config import table
from ctrlchan.errors import ConfigError
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.security.kerberos import kerberos_login, load_gssapi
from ctrlchan.security.listener_properties import LOGIN_MODULES, ListenerProperties
from ctrlchan.security.settings import GSSAPI, OAUTHBEARER, SaslSettings, TlsSettings
from ctrlchan.security.tokens import token_settings

__all__ = ["ClientSecurity", "client_security"]


class ClientSecurity(NamedTuple):
    """What connections to a listener need; None for what its security protocol does not have."""

    tls: TlsSettings | None
    sasl: SaslSettings | None


def client_security(properties: ListenerProperties, protocol: SecurityProtocol) -> ClientSecurity:
    """Return what a node needs to connect to a listener. Raises ConfigError with file, line and key.

    Keys: ``ssl.*``, ``sasl.mechanism.inter.broker.protocol``, and the JAAS entry of that mechanism, which the
    listener's own side has, too.
    """
    return ClientSecurity(
        properties.tls() if protocol.has_tls else None, _sasl(properties) if protocol.has_sasl else None
    )


def _sasl(properties: ListenerProperties) -> SaslSettings:
    key = table.SASL_MECHANISM_INTER_BROKER_PROTOCOL.name
    mechanism = properties.value(key) or table.SASL_MECHANISM_INTER_BROKER_PROTOCOL.value
    if mechanism not in LOGIN_MODULES:
        properties.refuse(key, f"{mechanism} is not {', '.join(LOGIN_MODULES)}")
    if mechanism == GSSAPI:
        try:
            load_gssapi()
        except ConfigError as problem:
            properties.refuse(key, str(problem))
    found = properties.jaas_options(mechanism)
    if found is None:
        properties.refuse_missing_jaas(mechanism)
    key, options = found
    try:
        if mechanism == OAUTHBEARER:
            endpoint = properties.value_of_mechanism(table.SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL, mechanism)
            tokens, extensions = token_settings(options, endpoint)
            return SaslSettings(mechanism=mechanism, tokens=tokens, extensions=extensions)
        if mechanism == GSSAPI:
            login = kerberos_login(options)
            return SaslSettings(
                mechanism=mechanism,
                service=_service(properties, options),
                principal=login.principal,
                keytab=login.keytab,
                ticket_cache=login.ticket_cache,
            )
        return SaslSettings(
            mechanism=mechanism,
            username=options.get("username", ""),
            password=options.get("password", ""),
            # PlainLoginModule has no such option, and leaves it aside.
            tokenauth=mechanism.startswith("SCRAM") and options.get("tokenauth", "").lower() == "true",
        )
    except (ConfigError, ValueError) as problem:
        properties.refuse(key, str(problem))


def _service(properties: ListenerProperties, options: Mapping[str, str]) -> str:
    """Return the first part of the brokers' principal. Raises ConfigError if two places differ."""
    key = table.SASL_KERBEROS_SERVICE_NAME.name
    service, other = properties.value(key), options.get("serviceName")
    if None not in (service, other) and service != other:
        properties.refuse(key, f"{service!r} is not the serviceName of the login module, {other!r}")
    return service or other or "kafka"
