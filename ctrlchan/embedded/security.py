"""ClusterSecurity: a secured listener of a cluster for tests, its users, and what their clients need.

The brokers, the controller and the cluster's own requests use another listener, on the loopback and without
security; whoever connects there may do all.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ctrlchan.config import table
from ctrlchan.embedded.certificates import Certificates
from ctrlchan.errors import ConfigError
from ctrlchan.security.settings import PASSWORD_MECHANISMS

__all__ = ["CLIENTS", "ClusterSecurity"]

#: Names of ``client_settings``.
CLIENTS: Final = ("confluent", "kafka-python", "aiokafka", "java")

_PROTOCOLS: Final = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_AUTHORIZER: Final = "kafka.security.authorizer.AclAuthorizer"
#: Who connects to the listener of the brokers.
_BROKERS: Final = "User:ANONYMOUS"
_USER: Final = "admin"


class ClusterSecurity:
    """The listener named as its security protocol: SSL, SASL_PLAINTEXT or SASL_SSL.

    ``users``: passwords by name; None stands for one user, ``admin``. With SSL they have certificates, which
    clients must show. ``authorizes``: requests of clients need ACLs. ``host``: in the brokers' certificate.
    ``close`` removes the files. Raises ConfigError.
    """

    def __init__(
        self, protocol: str, users: Mapping[str, str] | None, host: str, *, authorizes: bool
    ) -> None:
        if protocol not in _PROTOCOLS:
            raise ConfigError(f"security: {protocol!r} is not {', '.join(_PROTOCOLS)}")
        self.protocol = protocol
        self.users = {_USER: secrets.token_urlsafe(16)} if users is None else dict(users)
        if not self.users:
            raise ConfigError("users: there are none")
        for name, password in self.users.items():
            if not name or not password or not name.isprintable() or any(one in name for one in '",=+\\'):
                raise ConfigError(f"users: {name!r} or its password cannot be used")
        self._authorizes = authorizes
        self._folder = Path(tempfile.mkdtemp(prefix="ctrlchan-certificates-"))
        self._certificates: Certificates | None = None
        self._broker_file = ""
        self._user_files: dict[str, str] = {}
        try:
            if self.has_tls:
                self._certificates = Certificates(self._folder)
                hosts = dict.fromkeys((host, "localhost", "127.0.0.1", "::1"))
                self._broker_file = self._certificates.issue("broker", hosts)
                self._user_files = {name: self._certificates.issue(name) for name in self.users}
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<ClusterSecurity: {self.protocol}, users {', '.join(self.users)}>"

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    def configs(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the settings of the brokers: those that are given, and what secures the listener."""
        prefix = f"listener.name.{self.protocol.lower()}."
        found: dict[str, str] = {}
        if self.has_tls:
            assert self._certificates is not None
            found |= {
                prefix + table.SSL_KEYSTORE_TYPE.name: "PEM",
                prefix + table.SSL_KEYSTORE_LOCATION.name: self._broker_file,
                prefix + table.SSL_TRUSTSTORE_TYPE.name: "PEM",
                prefix + table.SSL_TRUSTSTORE_LOCATION.name: self._certificates.ca_file,
                prefix + table.SSL_CLIENT_AUTH.name: "none" if self.has_sasl else "required",
            }
        if self.has_sasl:
            found[prefix + table.SASL_ENABLED_MECHANISMS.name] = ",".join(PASSWORD_MECHANISMS)
            for mechanism in PASSWORD_MECHANISMS:
                options = self.users.items() if mechanism == "PLAIN" else ()
                found[f"{prefix}{mechanism.lower()}.{table.SASL_JAAS_CONFIG}"] = _jaas(
                    mechanism, {f"user_{name}": password for name, password in options}
                )
        if self._authorizes:
            others = given.get(table.SUPER_USERS.name, "")
            found[table.AUTHORIZER_CLASS_NAME.name] = _AUTHORIZER
            found[table.SUPER_USERS.name] = f"{_BROKERS};{others}" if others else _BROKERS
            return {**found, **given, table.SUPER_USERS.name: found[table.SUPER_USERS.name]}
        return {**found, **given}

    def principal(self, user: str) -> str:
        """Return the principal of a user, as ACLs name it. Raises KeyError for no such user."""
        self.users[user]
        return f"User:{user}" if self.has_sasl else f"User:CN={user}"

    def client_settings(
        self, client: str, bootstrap_servers: str, user: str | None = None, mechanism: str = "PLAIN"
    ) -> dict[str, Any]:
        """Return the settings of a client library for a user; see ``EmbeddedCluster.client_settings``."""
        if client not in CLIENTS:
            raise ConfigError(f"client: {client!r} is not {', '.join(CLIENTS)}")
        if mechanism not in PASSWORD_MECHANISMS:
            raise ConfigError(f"mechanism: {mechanism!r} is not {', '.join(PASSWORD_MECHANISMS)}")
        name = next(iter(self.users)) if user is None else user
        if name not in self.users:
            raise ConfigError(f"user: {name!r} is none of {', '.join(self.users)}")
        make = {"confluent": self._confluent, "java": self._java}.get(client, self._kafka_python)
        settings = make(bootstrap_servers, name, mechanism)
        if client == "aiokafka":
            _to_aiokafka(settings)
        return settings

    def close(self) -> None:
        """Remove the certificates and keys."""
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- clients

    def _confluent(self, servers: str, user: str, mechanism: str) -> dict[str, Any]:
        settings = {"bootstrap.servers": servers, "security.protocol": self.protocol}
        if self._certificates is not None:
            settings["ssl.ca.location"] = self._certificates.ca_file
            if not self.has_sasl:
                file = self._user_files[user]
                settings |= {"ssl.certificate.location": file, "ssl.key.location": file}
        if self.has_sasl:
            settings |= {
                "sasl.mechanism": mechanism,
                "sasl.username": user,
                "sasl.password": self.users[user],
            }
        return settings

    def _kafka_python(self, servers: str, user: str, mechanism: str) -> dict[str, Any]:
        settings = {"bootstrap_servers": servers, "security_protocol": self.protocol}
        if self._certificates is not None:
            settings["ssl_cafile"] = self._certificates.ca_file
            if not self.has_sasl:
                file = self._user_files[user]
                settings |= {"ssl_certfile": file, "ssl_keyfile": file}
        if self.has_sasl:
            settings |= {
                "sasl_mechanism": mechanism,
                "sasl_plain_username": user,
                "sasl_plain_password": self.users[user],
            }
        return settings

    def _java(self, servers: str, user: str, mechanism: str) -> dict[str, Any]:
        settings = {"bootstrap.servers": servers, "security.protocol": self.protocol}
        if self._certificates is not None:
            settings |= {
                table.SSL_TRUSTSTORE_TYPE.name: "PEM",
                table.SSL_TRUSTSTORE_LOCATION.name: self._certificates.ca_file,
            }
            if not self.has_sasl:
                settings |= {
                    table.SSL_KEYSTORE_TYPE.name: "PEM",
                    table.SSL_KEYSTORE_LOCATION.name: self._user_files[user],
                }
        if self.has_sasl:
            login = _jaas(mechanism, {"username": user, "password": self.users[user]})
            settings |= {"sasl.mechanism": mechanism, table.SASL_JAAS_CONFIG.name: login}
        return settings


def _to_aiokafka(settings: dict[str, Any]) -> None:
    """Give settings of kafka-python the context that aiokafka wants in place of files."""
    import ssl

    ca_file, file = settings.pop("ssl_cafile", None), settings.pop("ssl_certfile", None)
    settings.pop("ssl_keyfile", None)
    if ca_file is not None:
        context = ssl.create_default_context(cafile=ca_file)
        if file is not None:
            context.load_cert_chain(file)
        settings["ssl_context"] = context


def _jaas(mechanism: str, options: Mapping[str, str]) -> str:
    words = [_MODULES[mechanism], "required"]
    for name, value in options.items():
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        words.append(f'{name}="{escaped}"')
    return " ".join(words) + ";"
