"""A file of Kafka's settings, ``server.properties``: its syntax, its listeners, TLS and JAAS.

The syntax is that of ``java.util.Properties``. Kafka's config providers (``${file:...}``) are not resolved.
Errors are ConfigErrors with file, line and key; they repeat no secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from os import PathLike, fspath
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from ctrlchan.config import table
from ctrlchan.config.setting import Setting
from ctrlchan.errors import ConfigError
from ctrlchan.protocol import SECURITY_PROTOCOLS
from ctrlchan.security.ciphers import openssl_suites
from ctrlchan.security.jaas import parse_jaas_config
from ctrlchan.security.settings import TlsSettings

__all__ = ["LOGIN_MODULES", "Entry", "ListenerProperties", "PropertiesFile", "read_properties"]

_T = TypeVar("_T")

#: The login module of each SASL mechanism.
LOGIN_MODULES: Final = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
}
_STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")


class Entry(NamedTuple):
    """A value and the line of its key; 0 where it comes from a mapping."""

    value: str
    line: int


def read_properties(text: str) -> dict[str, Entry]:
    """Return the keys and values of a properties file. The last value of a key counts."""
    found: dict[str, Entry] = {}
    logical, begun = "", 0
    for number, line in enumerate(_LINE_END.split(text), 1):
        line = line.lstrip(" \t\f")
        if not logical:
            if not line or line[0] in "#!":
                continue
            begun = number
        logical += line
        if (len(logical) - len(logical.rstrip("\\"))) % 2:
            logical = logical[:-1]
            continue
        key, value = _split(logical)
        found[key] = Entry(value, begun)
        logical = ""
    if logical:
        key, value = _split(logical)
        found[key] = Entry(value, begun)
    return found


_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_KEY: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _split(logical: str) -> tuple[str, str]:
    match = _KEY.fullmatch(logical)
    assert match is not None
    return _unescaped(match[1]), _unescaped(match[2])


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        after = match[1]
        return chr(int(after[1:], 16)) if len(after) > 1 else _ESCAPED.get(after, after)

    return _ESCAPE.sub(plain, text) if "\\" in text else text


class PropertiesFile:
    """The entries of a file. ``name`` is the file's, for errors."""

    def __init__(self, name: str, entries: Mapping[str, Entry]) -> None:
        self.name = name
        self.entries = entries

    @classmethod
    def read(cls, source: str | PathLike[str] | Mapping[str, str]) -> PropertiesFile:
        """Return the entries of a file or a mapping. Raises ConfigError if the file cannot be read."""
        if isinstance(source, Mapping):
            return cls("properties", {key: Entry(value, 0) for key, value in source.items()})
        name = fspath(source)
        try:
            # As java.util.Properties reads it; other characters are written as \\uXXXX there.
            with open(name, encoding="latin-1", newline="") as file:
                text = file.read()
        except OSError as problem:
            raise ConfigError(f"{name}: {problem.strerror}") from None
        return cls(name, read_properties(text))

    def value(self, key: str, *, empty: bool = False) -> str | None:
        """Return the value of a key, or None if it is not set. An empty value is None unless ``empty``."""
        entry = self.entries.get(key)
        if entry is None:
            return None
        value = entry.value.strip()
        if value.startswith("${") or "=${" in value or '"${' in value:
            self.refuse(key, "a config provider's ${...} is not resolved here: give the value itself")
        return value if value or empty else None

    def parse(self, key: str, parse: Callable[[str, str], _T]) -> _T | None:
        """Return what ``parse`` makes of the key and its value, or None if the key is not set.

        Raises ConfigError with the file, the line and the message of the ConfigError that ``parse`` raises.
        """
        text = self.value(key)
        if text is None:
            return None
        try:
            return parse(key, text)
        except ConfigError as refused:
            raise ConfigError(f"{self._where(key)}: {refused}") from None

    def read_setting(self, setting: Setting[_T]) -> _T | None:
        """Return the value of a setting, or None if it is not set. Raises ConfigError with file and line."""
        return self.parse(setting.name, lambda _, text: setting.parse(text))

    def arguments(
        self, wanted: Mapping[Setting[Any], tuple[str, Callable[[Any], Any] | None]]
    ) -> dict[str, Any]:
        """Return the values of the settings that are set, under the names of arguments.

        ``wanted``: by setting, the argument, and what makes its value of the setting's. Raises ConfigError.
        """
        found = {}
        for setting, (argument, convert) in wanted.items():
            value = self.parse(setting.name, partial(_parse, setting, convert))
            if value is not None:
                found[argument] = value
        return found

    def refuse(self, key: str, reason: str) -> NoReturn:
        """Raise ConfigError with the file, the line and the key."""
        raise ConfigError(f"{self._where(key)}: {key}: {reason}") from None

    def _where(self, key: str) -> str:
        entry = self.entries.get(key)
        return f"{self.name}:{entry.line}" if entry is not None and entry.line else self.name

    def security_protocols(self) -> dict[str, str]:
        """Return the security protocol of each listener name (``listener.security.protocol.map``)."""
        key = table.LISTENER_SECURITY_PROTOCOL_MAP.name
        text = self.value(key)
        if text is None:
            return {name: name for name in SECURITY_PROTOCOLS}
        found = {}
        for pair in text.split(","):
            listener, _, protocol = (part.strip() for part in pair.strip().rpartition(":"))
            if not listener or protocol.upper() not in SECURITY_PROTOCOLS:
                self.refuse(key, f"{pair!r} is not LISTENER:PROTOCOL")
            found[listener] = protocol.upper()
        return found

    def inter_broker_listener(self) -> str:
        """Return the name of the listener that brokers use among themselves."""
        key = table.SECURITY_INTER_BROKER_PROTOCOL.name
        protocol = self.value(key)
        name = self.value(table.INTER_BROKER_LISTENER_NAME.name)
        if name is None:
            if protocol is not None and protocol not in SECURITY_PROTOCOLS:
                self.refuse(key, f"{protocol!r} is not {', '.join(SECURITY_PROTOCOLS)}")
            return protocol or "PLAINTEXT"
        if protocol is not None:
            self.refuse(key, f"only one of it and {table.INTER_BROKER_LISTENER_NAME} can be set")
        return name


def _parse(setting: Setting[Any], convert: Callable[[Any], Any] | None, _name: str, text: str) -> Any:
    value = setting.parse(text)
    return value if convert is None else convert(value)


class ListenerProperties:
    """The entries of a file for one listener: with its prefix first, then without."""

    def __init__(self, file: PropertiesFile, listener: str) -> None:
        self._file = file
        self._prefix = f"listener.name.{listener.lower()}."

    def value(self, key: str, *, empty: bool = False) -> str | None:
        """Return the value for the listener, else the one for all; an empty value only with ``empty``."""
        for name in (self._prefix + key, key):
            value = self._file.value(name, empty=empty)
            if value is not None:
                return value
        return None

    def refuse(self, key: str, reason: str) -> NoReturn:
        """Raise ConfigError with the file, the line and the key, and its prefix if the file has it."""
        prefixed = self._prefix + key
        self._file.refuse(prefixed if prefixed in self._file.entries else key, reason)

    def tls(self) -> TlsSettings:
        """Return the TLS settings (``ssl.*``)."""
        key_type = self._store_type(table.SSL_KEYSTORE_TYPE.name)
        trust_type = self._store_type(table.SSL_TRUSTSTORE_TYPE.name)
        settings: dict[str, Any] = {
            "ca_file": self.value(table.SSL_TRUSTSTORE_LOCATION.name),
            "ca_pem": self.value(table.SSL_TRUSTSTORE_CERTIFICATES.name),
            "truststore_password": self.value(table.SSL_TRUSTSTORE_PASSWORD.name),
            "certificate_file": self.value(table.SSL_KEYSTORE_LOCATION.name),
            "certificate_pem": self.value(table.SSL_KEYSTORE_CERTIFICATE_CHAIN.name),
            "key_pem": self.value(table.SSL_KEYSTORE_KEY.name),
            "keystore_password": self.value(table.SSL_KEYSTORE_PASSWORD.name),
            "key_password": self.value(table.SSL_KEY_PASSWORD.name),
            "verify_host_name": self._verify_host_name(),
        }
        for ours, theirs, kind in (
            ("ca_pem", table.SSL_TRUSTSTORE_CERTIFICATES, trust_type),
            ("certificate_pem", table.SSL_KEYSTORE_CERTIFICATE_CHAIN, key_type),
        ):
            if settings[ours] is not None and kind not in (None, "PEM"):
                self.refuse(theirs.name, f"only a store of type PEM has it, not {kind}")
        key = table.SSL_ENABLED_PROTOCOLS.name
        versions = self.value(key)
        if versions is not None:
            # As in Kafka, the list may have older versions; none below TLSv1.2 is ever used.
            named = table.SSL_ENABLED_PROTOCOLS.parse(versions)
            allowed = tuple(version for version in ("TLSv1.2", "TLSv1.3") if version in named)
            if not allowed:
                self.refuse(key, f"{versions!r} has neither TLSv1.2 nor TLSv1.3")
            settings["versions"] = allowed
        key = table.SSL_CIPHER_SUITES.name
        suites = self.value(key)
        if suites is not None:
            settings["cipher_suites"] = tuple(table.SSL_CIPHER_SUITES.parse(suites))
            try:
                openssl_suites(settings["cipher_suites"])
            except ValueError as problem:
                self.refuse(key, str(problem))
        try:
            return TlsSettings(**settings)
        except ConfigError as problem:
            self.refuse(table.SSL_KEYSTORE_LOCATION.name, str(problem))

    def _store_type(self, key: str) -> str | None:
        value = self.value(key)
        if value is not None and value.upper() not in _STORE_TYPES:
            self.refuse(key, f"{value!r} is not {', '.join(_STORE_TYPES)}")
        return value and value.upper()

    def _verify_host_name(self) -> bool:
        key = table.SSL_ENDPOINT_IDENTIFICATION_ALGORITHM.name
        value = self.value(key, empty=True)
        if value not in (None, "", "https", "HTTPS"):
            self.refuse(key, f"{value!r} is neither https nor empty")
        return value != ""

    # -- SASL

    def jaas_options(self, mechanism: str) -> tuple[str, dict[str, str]] | None:
        """Return (key, options) of the login module of a mechanism, or None if it is not configured.

        The value is ``<login module> required <name>="<value>" ... ;``. A key for the mechanism counts before
        one for all, and each with the listener's prefix first.
        """
        plain = table.SASL_JAAS_CONFIG.name
        special = f"{mechanism.lower()}.{plain}"
        for key in (self._prefix + special, special, self._prefix + plain, plain):
            text = self._file.value(key)
            if text is not None:
                return key, self._parse_jaas(key, text, LOGIN_MODULES[mechanism])
        return None

    def _parse_jaas(self, key: str, text: str, module: str) -> dict[str, str]:
        try:
            modules = parse_jaas_config(text)
        except ConfigError as problem:
            self._file.refuse(key, f'it is not "<login module> required <name>=<value> ... ;": {problem}')
        if len(modules) != 1:
            self._file.refuse(key, f"it has {len(modules)} login modules in place of one")
        if modules[0].simple_name != module:
            self._file.refuse(key, f"its login module is not {module}")
        return dict(modules[0].options)
