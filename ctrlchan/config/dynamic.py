"""Which configs of brokers can be changed while brokers run, and what a change is checked for (KIP-226).

One broker may have a config for itself, or all brokers may have it. A listener's own value stands behind
``listener.name.NAME.``. Source: ``DynamicBrokerConfig.validateConfigs`` and ``DynamicConfig.Broker`` of Kafka
3.9 in ZooKeeper mode.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ctrlchan.config import table
from ctrlchan.config.setting import Scope, Setting
from ctrlchan.config.without_effect import WITHOUT_EFFECT
from ctrlchan.errors import ConfigError

__all__ = [
    "base_name",
    "changes_listener",
    "check_dynamic",
    "is_dynamic",
    "is_password",
    "listener_of",
    "row_of",
    "usable",
]

_LISTENER: Final = re.compile(r"listener\.name\.([^.]*)\.(.*)", re.DOTALL)

#: ``SslConfigs.RECONFIGURABLE_CONFIGS``: the key stores and trust stores of one listener.
_STORES: Final[tuple[Setting[Any], ...]] = (
    table.SSL_KEY_PASSWORD, table.SSL_KEYSTORE_CERTIFICATE_CHAIN, table.SSL_KEYSTORE_KEY,
    table.SSL_KEYSTORE_LOCATION, table.SSL_KEYSTORE_PASSWORD, table.SSL_KEYSTORE_TYPE,
    table.SSL_TRUSTSTORE_CERTIFICATES, table.SSL_TRUSTSTORE_LOCATION, table.SSL_TRUSTSTORE_PASSWORD,
    table.SSL_TRUSTSTORE_TYPE,
)  # fmt: skip
#: The other ones of ``DynamicListenerConfig`` that the table has a row for.
_OF_LISTENERS: Final[tuple[Setting[Any], ...]] = (
    table.PRINCIPAL_BUILDER_CLASS, table.SASL_ENABLED_MECHANISMS, table.SASL_JAAS_CONFIG,
    table.SASL_KERBEROS_PRINCIPAL_TO_LOCAL_RULES, table.SASL_KERBEROS_SERVICE_NAME,
    table.SASL_MECHANISM_INTER_BROKER_PROTOCOL,
    table.SSL_CIPHER_SUITES, table.SSL_CLIENT_AUTH, table.SSL_ENABLED_PROTOCOLS,
    table.SSL_ENDPOINT_IDENTIFICATION_ALGORITHM,
)  # fmt: skip
#: And those that nothing here acts on: brokers keep and describe them.
_WITHOUT_ROW: Final[tuple[Setting[Any], ...]] = tuple(
    WITHOUT_EFFECT[name].setting
    for name in (
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    )
)

_store_names: Final = frozenset(row.name for row in _STORES)
#: ``DynamicBrokerConfig.PerBrokerConfigs``.
_PER_BROKER: Final[Mapping[str, Setting[Any]]] = {
    row.name: row
    for row in (
        *(row for row in table.BROKERS.values() if row.scope is Scope.PER_BROKER),
        *_STORES,
        *_OF_LISTENERS,
        *_WITHOUT_ROW,
    )
}
#: ``DynamicBrokerConfig.AllDynamicConfigs``.
_DYNAMIC: Final[Mapping[str, Setting[Any]]] = {
    **{name: row for name, row in table.DYNAMIC.items() if name in table.BROKERS},
    **_PER_BROKER,
}
#: What follows the name of a mechanism, in names of one listener.
_OF_MECHANISMS: Final = (
    table.SASL_JAAS_CONFIG.name, "sasl.login.callback.handler.class", "sasl.login.class",
    table.SASL_SERVER_CALLBACK_HANDLER_CLASS.name, table.CONNECTIONS_MAX_REAUTH_MS.name,
)  # fmt: skip
_PASSWORDS: Final = (
    table.SASL_JAAS_CONFIG.name, table.SSL_KEY_PASSWORD.name, table.SSL_KEYSTORE_CERTIFICATE_CHAIN.name,
    table.SSL_KEYSTORE_KEY.name, table.SSL_KEYSTORE_PASSWORD.name, table.SSL_TRUSTSTORE_CERTIFICATES.name,
    table.SSL_TRUSTSTORE_PASSWORD.name,
)  # fmt: skip


def listener_of(name: str) -> tuple[str | None, str]:
    """Return the listener that a name begins with, in small letters, or None; and the rest of the name."""
    match = _LISTENER.fullmatch(name)
    return (None, name) if match is None else (match[1], match[2])


def base_name(name: str) -> str:
    """Return a name without its listener, and without the mechanism that may follow the listener."""
    listener, base = listener_of(name)
    if listener is None:
        return name
    return next((one for one in _OF_MECHANISMS if base.endswith(one)), base)


def is_dynamic(name: str) -> bool:
    """Return whether Kafka lists a name, without a listener, as that of a dynamic config."""
    return name in _DYNAMIC


def changes_listener(name: str) -> bool:
    """Return whether a listener that is there can have another value. ``name``: without its prefix."""
    row = table.DYNAMIC.get(name)
    return name in _store_names or (row is not None and row.per_listener)


def is_password(name: str) -> bool:
    """Return whether the value of a dynamic config is encoded in ZooKeeper."""
    return name.endswith(_PASSWORDS)


def row_of(name: str) -> Setting[Any] | None:
    """Return the setting of a dynamic config, of a listener or of all; None for an unknown name."""
    base = base_name(name)
    return _DYNAMIC.get(base) or table.DYNAMIC.get(base)


def check_dynamic(configs: Mapping[str, str], *, per_broker: bool) -> None:
    """Raise ConfigError for the dynamic configs that one broker, or all brokers, cannot have.

    Names that are not Kafka's are taken, as by Kafka. The message is Kafka's.
    """
    if read_only := list(filter(_is_read_only, configs)):
        raise _refused("Cannot update these configs dynamically", read_only)
    if stores := [name for name in configs if name in _store_names]:
        raise _refused(
            "These security configs can be dynamically updated only per-listener using the listener prefix",
            stores,
        )
    for name, text in configs.items():
        if (row := row_of(name)) is not None:
            row.parse(text)
    if not per_broker and (only := list(filter(_is_per_broker, configs))):
        raise _refused(
            "Cannot update these configs at default cluster level, broker id must be specified", only
        )


def usable(configs: Mapping[str, str], *, per_broker: bool) -> tuple[dict[str, str], list[str]]:
    """Return those of the configs in ZooKeeper that count, and why others do not.

    Source: ``DynamicBrokerConfig.fromPersistentProps``.
    """
    kept, problems = {}, []
    for name, text in configs.items():
        try:
            check_dynamic({name: text}, per_broker=per_broker)
        except ConfigError as error:
            problems.append(str(error))
        else:
            kept[name] = text
    return kept, problems


def _is_read_only(name: str) -> bool:
    if name in _DYNAMIC:
        return False
    rows = (table.BROKERS, table.UNSHOWN, table.SECURITY, table.CONTROLLERS, WITHOUT_EFFECT)
    return any(name in names for names in rows)


def _is_per_broker(name: str) -> bool:
    listener, base = listener_of(name)
    if listener is None:
        return name in _PER_BROKER
    row = table.DYNAMIC.get(base)
    return row is None or not row.per_listener


def _refused(why: str, names: Iterable[str]) -> ConfigError:
    return ConfigError(f"{why}: Set({', '.join(names)})")
