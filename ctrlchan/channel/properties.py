"""A broker's ``server.properties`` as settings of a channel, under Kafka's own names.

A ZooKeeper-mode controller is a broker and takes its settings from the same file. Keys that are not in
``_PLAIN`` and have nothing to do with listeners, TLS or SASL are skipped. Keys of TLS and SASL are looked for
first with the prefix of the listener that the channel uses (``listener.name.<name>.``, in small letters),
then without it.

The syntax is that of ``java.util.Properties``. Kafka's config providers (``${file:...}``) are not resolved.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from os import PathLike, fspath
from typing import Any, Final, NamedTuple, NoReturn

from ctrlchan.channel.wire.security import SaslSettings, TlsSettings
from ctrlchan.errors import ConfigError
from ctrlchan.protocol import SECURITY_PROTOCOLS, request_versions

__all__ = ["read_properties", "settings_of"]


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


def settings_of(
    source: str | PathLike[str] | Mapping[str, str], listener: str | None = None
) -> dict[str, Any]:
    """Return arguments for ``ChannelConfig``, without those that the file does not set.

    ``listener`` is used in the place of ``control.plane.listener.name``.
    """
    if isinstance(source, Mapping):
        entries = {key: Entry(value, 0) for key, value in source.items()}
        return _Reading("properties", entries, listener).settings()
    name = fspath(source)
    try:
        # As java.util.Properties reads it; other characters are written as \\uXXXX there.
        with open(name, encoding="latin-1", newline="") as file:
            text = file.read()
    except OSError as problem:
        raise ConfigError(f"{name}: {problem.strerror}") from None
    entries = read_properties(text)
    if not any(_is_known(key) for key in entries):
        raise ConfigError(f"{name}: no setting of a channel is in it (is this a server.properties?)")
    return _Reading(name, entries, listener).settings()


def _is_known(key: str) -> bool:
    return key in _PLAIN or key in _LISTENER_KEYS or key.startswith(_SECURITY_PREFIXES)


def _positive(text: str) -> int:
    value = int(text)
    if not 0 < value < 2**31:
        raise ConfigError(f"{value} is not in 1 .. {2**31 - 1}")
    return value


def _milliseconds(text: str) -> float:
    return _positive(text) / 1000


def _ibp(text: str) -> str:
    request_versions(text)
    return text


#: Kafka's key -> ours, and how its value is read.
_PLAIN: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "broker.id": ("controller_id", int),
    "inter.broker.protocol.version": ("inter_broker_protocol", _ibp),
    "controller.socket.timeout.ms": ("socket_timeout", _milliseconds),
    "request.timeout.ms": ("request_timeout", _milliseconds),
    "socket.connection.setup.timeout.ms": ("connection_setup_timeout", _milliseconds),
    "socket.connection.setup.timeout.max.ms": ("connection_setup_timeout_max", _milliseconds),
    "socket.request.max.bytes": ("max_request_bytes", _positive),
}

_LISTENER_KEYS: Final = (
    "control.plane.listener.name",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "security.inter.broker.protocol",
)
_SECURITY_PREFIXES: Final = ("listener.name.", "ssl.", "sasl.")
_STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")


class _Reading:
    """Reads the settings out of a file's entries. ``name`` is the file's, for errors."""

    def __init__(self, name: str, entries: Mapping[str, Entry], listener: str | None) -> None:
        self._name = name
        self._given = listener
        self._entries = entries
        self._prefix = ""

    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {}
        for key, (ours, read) in _PLAIN.items():
            value = self._plain(key)
            if value is not None:
                try:
                    settings[ours] = read(value)
                except ValueError as problem:
                    why = str(problem) if isinstance(problem, ConfigError) else f"{value!r} is not a number"
                    self._refuse(key, why)
        if settings.get("connection_setup_timeout", 0) > 30:
            settings.setdefault("connection_setup_timeout_max", settings["connection_setup_timeout"])
        settings |= self._listener()
        protocol = settings["security_protocol"]
        if protocol.endswith("SSL"):
            settings["tls"] = self._tls()
        if protocol.startswith("SASL"):
            settings["sasl"] = self._sasl()
        return settings

    # -- the listener

    def _listener(self) -> dict[str, Any]:
        protocols = self._protocols()
        inter_broker = self._plain("inter.broker.listener.name")
        if inter_broker is None:
            key = "security.inter.broker.protocol"
            inter_broker = self._plain(key) or "PLAINTEXT"
            if inter_broker not in SECURITY_PROTOCOLS:
                self._refuse(key, f"{inter_broker!r} is not {', '.join(SECURITY_PROTOCOLS)}")
        elif self._plain("security.inter.broker.protocol") is not None:
            self._refuse(
                "security.inter.broker.protocol", "only one of it and inter.broker.listener.name can be set"
            )
        control_plane = self._given or self._plain("control.plane.listener.name")
        used = control_plane or inter_broker
        if used not in protocols:
            key = "control.plane.listener.name" if control_plane else "inter.broker.listener.name"
            self._refuse(key, f"{used!r} has no protocol in listener.security.protocol.map")
        self._prefix = f"listener.name.{used.lower()}."
        return {
            "listener_name": control_plane,
            "inter_broker_listener": inter_broker,
            "security_protocol": protocols[used],
        }

    def _protocols(self) -> dict[str, str]:
        key = "listener.security.protocol.map"
        text = self._plain(key)
        if text is None:
            return {name: name for name in SECURITY_PROTOCOLS}
        found = {}
        for pair in text.split(","):
            listener, _, protocol = (part.strip() for part in pair.strip().rpartition(":"))
            if not listener or protocol.upper() not in SECURITY_PROTOCOLS:
                self._refuse(key, f"{pair!r} is not LISTENER:PROTOCOL")
            found[listener] = protocol.upper()
        return found

    # -- TLS

    def _tls(self) -> TlsSettings:
        key_type = self._store_type("ssl.keystore.type")
        trust_type = self._store_type("ssl.truststore.type")
        settings: dict[str, Any] = {
            "ca_file": self._secured("ssl.truststore.location"),
            "ca_pem": self._secured("ssl.truststore.certificates"),
            "truststore_password": self._secured("ssl.truststore.password"),
            "certificate_file": self._secured("ssl.keystore.location"),
            "certificate_pem": self._secured("ssl.keystore.certificate.chain"),
            "key_pem": self._secured("ssl.keystore.key"),
            "keystore_password": self._secured("ssl.keystore.password"),
            "key_password": self._secured("ssl.key.password"),
            "verify_host_name": self._verify_host_name(),
        }
        for ours, theirs, kind in (
            ("ca_pem", "ssl.truststore.certificates", trust_type),
            ("certificate_pem", "ssl.keystore.certificate.chain", key_type),
        ):
            if settings[ours] is not None and kind not in (None, "PEM"):
                self._refuse(theirs, f"only a store of type PEM has it, not {kind}")
        versions = self._secured("ssl.enabled.protocols")
        if versions is not None:
            # As in Kafka, the list may have older versions; none below TLSv1.2 is ever used.
            named = tuple(version.strip() for version in versions.split(",") if version.strip())
            allowed = tuple(version for version in ("TLSv1.2", "TLSv1.3") if version in named)
            if not allowed:
                self._refuse("ssl.enabled.protocols", f"{versions!r} has neither TLSv1.2 nor TLSv1.3")
            settings["versions"] = allowed
        try:
            return TlsSettings(**settings)
        except ConfigError as problem:
            self._refuse("ssl.keystore.location", str(problem))

    def _store_type(self, key: str) -> str | None:
        value = self._secured(key)
        if value is not None and value.upper() not in _STORE_TYPES:
            self._refuse(key, f"{value!r} is not {', '.join(_STORE_TYPES)}")
        return value and value.upper()

    def _verify_host_name(self) -> bool:
        key = "ssl.endpoint.identification.algorithm"
        value = self._secured(key, empty=True)
        if value not in (None, "", "https", "HTTPS"):
            self._refuse(key, f"{value!r} is neither https nor empty")
        return value != ""

    # -- SASL

    def _sasl(self) -> SaslSettings:
        key = "sasl.mechanism.inter.broker.protocol"
        mechanism = self._secured(key) or "GSSAPI"
        module = _LOGIN_MODULES.get(mechanism)
        if module is None:
            self._refuse(key, f"{mechanism} is not {', '.join(_LOGIN_MODULES)}")
        jaas = f"{mechanism.lower()}.sasl.jaas.config"
        key, text = next(
            (
                (name, text)
                for name in (self._prefix + jaas, jaas, self._prefix + "sasl.jaas.config", "sasl.jaas.config")
                if (text := self._plain(name)) is not None
            ),
            (self._prefix + jaas, None),
        )
        if text is None:
            self._refuse(key, f"it is missing, and {mechanism} needs it (a JVM's JAAS file is not read)")
        options = self._jaas_options(key, text, module)
        try:
            return SaslSettings(
                mechanism=mechanism,
                username=options.get("username", ""),
                password=options.get("password", ""),
            )
        except ConfigError as problem:
            self._refuse(key, str(problem))

    def _jaas_options(self, key: str, text: str, module: str) -> dict[str, str]:
        """Parse ``<login module> required <name>="<value>" ... ;``. Errors repeat nothing of it."""
        match = _JAAS.fullmatch(text)
        if match is None:
            self._refuse(key, 'it is not "<login module> required <name>=<value> ... ;"')
        if match[1].rpartition(".")[2] != module:
            self._refuse(key, f"its login module is not {module}")
        return {name: _unquoted(value) for name, value in _JAAS_OPTION.findall(match[2])}

    # -- values

    def _secured(self, key: str, *, empty: bool = False) -> str | None:
        """Return the value for the listener, else the one for all. An empty value is None unless `empty`."""
        for name in (self._prefix + key, key):
            value = self._plain(name, empty=empty)
            if value is not None:
                return value
        return None

    def _plain(self, key: str, *, empty: bool = False) -> str | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        value = entry.value.strip()
        if value.startswith("${") or "=${" in value or '"${' in value:
            self._refuse(key, "a config provider's ${...} is not resolved here: give the value itself")
        return value if value or empty else None

    def _refuse(self, key: str, reason: str) -> NoReturn:
        name = key if key in self._entries or self._prefix == "" else key.removeprefix(self._prefix)
        prefixed = self._prefix + name
        entry = self._entries.get(prefixed) or self._entries.get(name)
        shown = prefixed if prefixed in self._entries else name
        where = f"{self._name}:{entry.line}" if entry is not None and entry.line else self._name
        raise ConfigError(f"{where}: {shown}: {reason}") from None


_VALUE: Final = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+)"""
_JAAS_OPTION: Final = re.compile(rf"\s+([\w.$-]+)\s*=\s*({_VALUE})", re.DOTALL)
_JAAS: Final = re.compile(
    rf"\s*([\w.$-]+)\s+(?:required|requisite|sufficient|optional)((?:\s+[\w.$-]+\s*=\s*{_VALUE})*)\s*;\s*",
    re.DOTALL | re.IGNORECASE,
)


def _unquoted(value: str) -> str:
    return _unescaped(value[1:-1]) if value[0] in "\"'" else value


_LOGIN_MODULES: Final = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
}
