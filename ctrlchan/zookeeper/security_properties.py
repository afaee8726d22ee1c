"""The keys of ``server.properties`` that secure a session with ZooKeeper, of brokers and controllers alike.

``zookeeper.ssl.*`` are TLS. SASL is what the entry ``Client`` of a JAAS file has, as in a JVM:
``java.security.auth.login.config`` names the file. ``zookeeper.sasl.client=false`` leaves it out, and
``zookeeper.sasl.clientconfig`` names another entry.
Source: ``KafkaConfig.zkClientConfigViaSystemProperties``, ``JaasUtils.isZkSaslEnabled`` of Kafka 3.9.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import PurePath
from typing import Any, Final

from ctrlchan.config import table
from ctrlchan.config.properties_file import PropertiesFile
from ctrlchan.config.setting import Setting
from ctrlchan.errors import ConfigError
from ctrlchan.security.jaas import LoginModule, read_jaas_file
from ctrlchan.security.stores import STORE_TYPES
from ctrlchan.zookeeper.settings import SaslSettings, TlsSettings

__all__ = ["zookeeper_security"]

_DIGEST: Final = "DigestLoginModule"
_KERBEROS: Final = "Krb5LoginModule"


def zookeeper_security(file: PropertiesFile) -> dict[str, Any]:
    """Return ``tls``, ``sasl`` and ``set_acl`` of ``ZooKeeperSettings``, without those that are not set.

    Raises ConfigError with file, line and key.
    """
    found: dict[str, Any] = {}
    tls, sasl = _tls(file), _sasl(file)
    if tls is not None:
        found["tls"] = tls
    if sasl is not None:
        found["sasl"] = sasl
    if file.read_setting(table.ZOOKEEPER_SET_ACL):
        found["set_acl"] = True
    return found


# -- TLS


def _tls(file: PropertiesFile) -> TlsSettings | None:
    if not file.read_setting(table.ZOOKEEPER_SSL_CLIENT_ENABLE):
        return None
    for unserved in (table.ZOOKEEPER_SSL_CRL_ENABLE, table.ZOOKEEPER_SSL_OCSP_ENABLE):
        if file.read_setting(unserved):
            file.refuse(unserved.name, "revoked certificates are not looked up here")
    truststore = _store(file, table.ZOOKEEPER_SSL_TRUSTSTORE_LOCATION, table.ZOOKEEPER_SSL_TRUSTSTORE_TYPE)
    keystore = _store(file, table.ZOOKEEPER_SSL_KEYSTORE_LOCATION, table.ZOOKEEPER_SSL_KEYSTORE_TYPE)
    algorithm = file.value(table.ZOOKEEPER_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM.name, empty=True)
    password = file.value(table.ZOOKEEPER_SSL_KEYSTORE_PASSWORD.name)
    return TlsSettings(
        ca=truststore,
        certificate=keystore,
        key=keystore,
        # Of a PEM file it is that of the key, of another store that of the store.
        key_password=password,
        truststore_password=file.value(table.ZOOKEEPER_SSL_TRUSTSTORE_PASSWORD.name),
        verify_host=algorithm is None or algorithm.lower() == "https",
        versions=_list(file, table.ZOOKEEPER_SSL_ENABLED_PROTOCOLS),
        cipher_suites=_list(file, table.ZOOKEEPER_SSL_CIPHER_SUITES),
    )


def _list(file: PropertiesFile, setting: Setting[Any]) -> tuple[str, ...]:
    return tuple(file.read_setting(setting) or ())


def _store(file: PropertiesFile, location: Setting[str], kind: Setting[str]) -> str | None:
    """Return where a store is. Raises ConfigError for a type that nobody knows."""
    path = file.value(location.name)
    given = file.value(kind.name) or ("PEM" if path is None else _kind_of(path))
    if given.upper() not in STORE_TYPES:
        file.refuse(kind.name, f"{given!r} is not {', '.join(STORE_TYPES)}")
    return path


def _kind_of(location: str) -> str:
    """Return the type that Kafka takes a store for by the end of its name."""
    return {".jks": "JKS", ".p12": "PKCS12", ".pfx": "PKCS12"}.get(PurePath(location).suffix, "PEM")


# -- SASL


def _sasl(file: PropertiesFile) -> SaslSettings | None:
    key = table.JAVA_SECURITY_AUTH_LOGIN_CONFIG.name
    path = file.value(key)
    if path is None or file.read_setting(table.ZOOKEEPER_SASL_CLIENT) is False:
        return None
    entry = file.value(table.ZOOKEEPER_SASL_CLIENTCONFIG.name) or table.ZOOKEEPER_SASL_CLIENTCONFIG.value
    try:
        modules = read_jaas_file(path).get(entry)
    except ConfigError as problem:
        file.refuse(key, str(problem))
    if modules is None:
        return None  # the file is for listeners
    if len(modules) != 1:
        file.refuse(key, f"{path}: entry {entry} has {len(modules)} login modules in place of one")
    try:
        return _settings_of(modules[0])
    except ConfigError as problem:
        file.refuse(key, f"{path}: entry {entry}: {problem}")


def _settings_of(module: LoginModule) -> SaslSettings:
    options = module.options
    if module.simple_name == _DIGEST:
        username, password = options.get("username"), options.get("password")
        if not username or not password:
            raise ConfigError("username and password: one of them is missing")
        return SaslSettings(username=username, password=password)
    if module.simple_name == _KERBEROS:
        if find_spec("kerberos") is None:
            raise ConfigError("GSSAPI needs a package: pip install pure-sasl[GSSAPI]")
        return SaslSettings(
            mechanism="GSSAPI",
            service=options.get("serviceName", "zookeeper"),
            principal=options.get("principal"),
        )
    raise ConfigError(f"its login module is neither {_DIGEST} nor {_KERBEROS}")
