"""The keys of ``server.properties`` that secure one listener, or the connections to it."""

from __future__ import annotations

from typing import Any, Final, NoReturn, TypeVar

from ctrlchan.config import table
from ctrlchan.config.properties_file import PropertiesFile
from ctrlchan.config.setting import Setting
from ctrlchan.errors import ConfigError
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.security.ciphers import openssl_suites
from ctrlchan.security.jaas import parse_jaas_config, read_jaas_file
from ctrlchan.security.kerberos import KerberosLogin, acceptor_credentials, kerberos_login, load_gssapi
from ctrlchan.security.kerberos_names import DEFAULT_KERBEROS_RULES, KerberosRules
from ctrlchan.security.listener_security import ClientAuth, ListenerSecurity
from ctrlchan.security.principal_rules import DEFAULT_RULES, PrincipalRules
from ctrlchan.security.principals import PrincipalBuilder, make_principal_builder
from ctrlchan.security.settings import GSSAPI, TlsSettings
from ctrlchan.security.stores import STORE_TYPES
from ctrlchan.security.token_settings import SignedTokenSettings

__all__ = ["LOGIN_MODULES", "ListenerProperties", "listener_security"]

_T = TypeVar("_T")

#: The login module of each SASL mechanism.
LOGIN_MODULES: Final = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
    "GSSAPI": "Krb5LoginModule",
}
#: Of a JAAS file; one with the name of a listener before it counts first (``JaasContext``).
_SERVER_ENTRY: Final = "KafkaServer"
_USER: Final = "user_"
#: Kafka's classes that validate tokens: of OAUTHBEARER without and with signatures.
_UNSIGNED_HANDLER: Final = "OAuthBearerUnsecuredValidatorCallbackHandler"
_SIGNED_HANDLER: Final = "OAuthBearerValidatorCallbackHandler"


class ListenerProperties:
    """The entries of a file for one listener: with its prefix first, then without."""

    def __init__(self, file: PropertiesFile, listener: str) -> None:
        self._file = file
        self._listener = listener.lower()
        self._prefix = f"listener.name.{self._listener}."

    def value(self, key: str, *, empty: bool = False) -> str | None:
        """Return the value for the listener, else the one for all; an empty value only with ``empty``."""
        for name in (self._prefix + key, key):
            value = self._file.value(name, empty=empty)
            if value is not None:
                return value
        return None

    def own_value(self, key: str) -> str | None:
        """Return the value for the listener alone."""
        return self._file.value(self._prefix + key)

    def all(self) -> dict[str, str]:
        """Return all entries of the file as the listener has them: its own ones without their prefix."""
        entries = {key: value for key in self._file.entries if (value := self._file.value(key)) is not None}
        own = {
            key.removeprefix(self._prefix): entries[key] for key in entries if key.startswith(self._prefix)
        }
        return entries | own

    def parsed(self, setting: Setting[_T]) -> _T:
        """Return the value for the listener, else the one for all, else the default.

        Raises ConfigError with file, line and key.
        """
        for key in (self._prefix + setting.name, setting.name):
            found = self._file.parse(key, lambda key, text: setting.parse(text, key))
            if found is not None:
                return found
        return setting.value

    def value_of_mechanism(self, setting: Setting[_T], mechanism: str) -> _T | None:
        """Return the value for a mechanism, else the one for all, each for the listener first.

        Raises ConfigError with file, line and key.
        """
        for name in (f"{mechanism.lower()}.{setting.name}", setting.name):
            for key in (self._prefix + name, name):
                if self._file.value(key) is not None:
                    return self._file.parse(key, lambda key, text: setting.parse(text, key))
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
        if value is not None and value.upper() not in STORE_TYPES:
            self.refuse(key, f"{value!r} is not {', '.join(STORE_TYPES)}")
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
        one for all, and each with the listener's prefix first. The entries of a JAAS file come last:
        ``<listener>.KafkaServer``, then ``KafkaServer``.
        """
        plain = table.SASL_JAAS_CONFIG.name
        special = f"{mechanism.lower()}.{plain}"
        for key in (self._prefix + special, special, self._prefix + plain, plain):
            text = self._file.value(key)
            if text is not None:
                return key, self._parse_jaas(key, text, LOGIN_MODULES[mechanism])
        key = table.JAVA_SECURITY_AUTH_LOGIN_CONFIG.name
        path = self._file.value(key)
        return None if path is None else self._find_in_jaas_file(key, path, LOGIN_MODULES[mechanism])

    def refuse_missing_jaas(self, mechanism: str) -> NoReturn:
        """Raise ConfigError: there is no login module of a mechanism."""
        file = table.JAVA_SECURITY_AUTH_LOGIN_CONFIG
        self.refuse(
            f"{mechanism.lower()}.{table.SASL_JAAS_CONFIG}",
            f"it is missing, and {mechanism} needs it or an entry of the file of {file}",
        )

    def _find_in_jaas_file(self, key: str, path: str, module: str) -> tuple[str, dict[str, str]] | None:
        """Return what a JAAS file has for a login module: the options of the first one of its class."""
        try:
            entries = read_jaas_file(path)
        except ConfigError as problem:
            self._file.refuse(key, str(problem))
        for name in (f"{self._listener}.{_SERVER_ENTRY}", _SERVER_ENTRY):
            if name in entries:
                found = [one for one in entries[name] if one.simple_name == module]
                return (key, dict(found[0].options)) if found else None
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


def listener_security(properties: ListenerProperties, protocol: SecurityProtocol) -> ListenerSecurity:
    """Return the security of a listener. Raises ConfigError with file, line and key.

    Keys: ``principal.builder.class``, ``ssl.*``, ``ssl.client.auth``, ``sasl.enabled.mechanisms``,
    ``connections.max.reauth.ms``, the users of PLAIN (``plain.sasl.jaas.config`` with
    ``user_<name>="<password>"``), and how tokens of OAUTHBEARER are validated
    (``oauthbearer.sasl.jaas.config``), the keytab of GSSAPI (``gssapi.sasl.jaas.config``), and
    ``sasl.kerberos.principal.to.local.rules``, each with the listener's prefix first.
    """
    tls = properties.tls() if protocol.has_tls else None
    mechanisms: tuple[str, ...] = ()
    users: dict[str, str] = {}
    token_options: dict[str, str] | None = None
    signed_tokens: SignedTokenSettings | None = None
    max_reauth_ms: dict[str, int] = {}
    if protocol.has_sasl:
        setting = table.SASL_ENABLED_MECHANISMS
        text = properties.value(setting.name)
        mechanisms = tuple(filter(None, setting.value if text is None else setting.parse(text)))
        unknown = [name for name in mechanisms if name not in LOGIN_MODULES]
        if unknown:
            properties.refuse(setting.name, f"{unknown[0]} is not {', '.join(LOGIN_MODULES)}")
        found = properties.jaas_options("PLAIN") if "PLAIN" in mechanisms else None
        if found is not None:
            users = {
                name.removeprefix(_USER): password
                for name, password in found[1].items()
                if name.startswith(_USER)
            }
        found = properties.jaas_options("OAUTHBEARER") if "OAUTHBEARER" in mechanisms else None
        token_options = None if found is None else found[1]
        signed_tokens = _signed_tokens(properties) if "OAUTHBEARER" in mechanisms else None
        for mechanism in mechanisms:
            _check_callback_handler(properties, mechanism, signed=signed_tokens is not None)
            max_reauth_ms[mechanism] = (
                properties.value_of_mechanism(table.CONNECTIONS_MAX_REAUTH_MS, mechanism) or 0
            )
    client_auth = ClientAuth.NONE if tls is None else _client_auth(properties, protocol)
    try:
        return ListenerSecurity(
            tls=tls,
            client_auth=client_auth,
            principal_rules=_principal_rules(properties) if protocol.has_tls else DEFAULT_RULES,
            principal_builder=_principal_builder(properties),
            allows_dn_changes=properties.parsed(table.SSL_ALLOW_DN_CHANGES),
            allows_san_changes=properties.parsed(table.SSL_ALLOW_SAN_CHANGES),
            stores_refresh_ms=properties.parsed(table.SSL_STORES_REFRESH_INTERVAL_MS),
            mechanisms=mechanisms,
            users=users,
            token_options=token_options,
            signed_tokens=signed_tokens,
            max_reauth_ms=max_reauth_ms,
            kerberos=_kerberos(properties) if GSSAPI in mechanisms else None,
            kerberos_rules=_kerberos_rules(properties) if GSSAPI in mechanisms else DEFAULT_KERBEROS_RULES,
        )
    except ConfigError as problem:
        properties.refuse(table.SASL_ENABLED_MECHANISMS.name, str(problem))


def _check_callback_handler(properties: ListenerProperties, mechanism: str, *, signed: bool) -> None:
    """Raise ConfigError for a class of Java that would check passwords or tokens in another way.

    As in Kafka, only a key with the listener's prefix and the mechanism counts. ``signed``: tokens must be.
    """
    key = f"{mechanism.lower()}.{table.SASL_SERVER_CALLBACK_HANDLER_CLASS}"
    handler = properties.own_value(key)
    if handler is None:
        return
    name = handler.rpartition(".")[2]
    if mechanism != "OAUTHBEARER" or name not in (_UNSIGNED_HANDLER, _SIGNED_HANDLER):
        properties.refuse(key, f"a class of Java is not run here: {handler}")
    if name == _SIGNED_HANDLER and not signed:
        properties.refuse(key, f"{name} needs {table.SASL_OAUTHBEARER_JWKS_ENDPOINT_URL}")


def _principal_rules(properties: ListenerProperties) -> PrincipalRules:
    key = table.SSL_PRINCIPAL_MAPPING_RULES.name
    text = properties.value(key)
    if text is None:
        return DEFAULT_RULES
    try:
        return PrincipalRules(text)
    except ConfigError as problem:
        properties.refuse(key, str(problem))


def _kerberos_rules(properties: ListenerProperties) -> KerberosRules:
    setting = table.SASL_KERBEROS_PRINCIPAL_TO_LOCAL_RULES
    try:
        texts: list[str] = properties.parsed(setting)
        return KerberosRules(texts)
    except ConfigError as problem:
        properties.refuse(setting.name, str(problem))


def _kerberos(properties: ListenerProperties) -> KerberosLogin:
    """Return the principal of a listener, of whom its keytab has a key. Raises ConfigError."""
    try:
        load_gssapi()
    except ConfigError as problem:
        properties.refuse(table.SASL_ENABLED_MECHANISMS.name, str(problem))
    found = properties.jaas_options(GSSAPI)
    if found is None:
        properties.refuse_missing_jaas(GSSAPI)
    key, options = found
    try:
        login = kerberos_login(options)
        if login.keytab is None or options.get("storeKey", "").lower() != "true":
            raise ConfigError("a listener needs useKeyTab=true and storeKey=true")
        # The principal of a keytab that has no key of it could let nobody in.
        acceptor_credentials(login)
    except ConfigError as problem:
        properties.refuse(key, str(problem))
    return login


def _principal_builder(properties: ListenerProperties) -> PrincipalBuilder | None:
    key = table.PRINCIPAL_BUILDER_CLASS.name
    if properties.value(key) is None:
        return None
    try:
        return make_principal_builder(properties.all())
    except ConfigError as problem:
        properties.refuse(key, str(problem))


def _signed_tokens(properties: ListenerProperties) -> SignedTokenSettings | None:
    """Return how signed tokens are validated, or None if no keys are named."""

    def given(setting: Setting[_T]) -> _T | None:
        return properties.value_of_mechanism(setting, "OAUTHBEARER")

    def value(setting: Setting[_T]) -> _T:
        found = given(setting)
        return setting.value if found is None else found

    url = given(table.SASL_OAUTHBEARER_JWKS_ENDPOINT_URL)
    if url is None:
        return None
    audience = given(table.SASL_OAUTHBEARER_EXPECTED_AUDIENCE)
    return SignedTokenSettings(
        jwks_url=url,
        refresh_ms=value(table.SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS),
        retry_backoff_ms=value(table.SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MS),
        retry_backoff_max_ms=value(table.SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS),
        clock_skew_seconds=value(table.SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS),
        audience=tuple(audience or ()),
        issuer=given(table.SASL_OAUTHBEARER_EXPECTED_ISSUER),
        subject_claim=value(table.SASL_OAUTHBEARER_SUB_CLAIM_NAME),
    )


def _client_auth(properties: ListenerProperties, protocol: SecurityProtocol) -> ClientAuth:
    """Return whether clients must show a certificate; of SASL_SSL only the listener's own key counts."""
    key = table.SSL_CLIENT_AUTH.name
    text = properties.own_value(key) if protocol is SecurityProtocol.SASL_SSL else properties.value(key)
    if text is None:
        return ClientAuth.NONE
    if text not in list(ClientAuth):
        properties.refuse(key, f"{text!r} is not {', '.join(ClientAuth)}")
    return ClientAuth(text)
