"""How a listener authenticates those who connect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ctrlchan.errors import ConfigError
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.security.kerberos import KerberosLogin
from ctrlchan.security.kerberos_names import DEFAULT_KERBEROS_RULES, KerberosRules
from ctrlchan.security.principal_rules import DEFAULT_RULES, PrincipalRules
from ctrlchan.security.principals import PrincipalBuilder
from ctrlchan.security.settings import GSSAPI, MECHANISMS, OAUTHBEARER, TlsSettings
from ctrlchan.security.token_settings import SignedTokenSettings

__all__ = ["ClientAuth", "ListenerSecurity"]


class ClientAuth(StrEnum):
    """Whether those who connect must show a certificate (``ssl.client.auth``)."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, kw_only=True)
class ListenerSecurity:
    """The security of one listener. Raises ConfigError, naming the setting, for a value that cannot work.

    - ``tls`` (None): the listener's certificate and key, and the certificates that sign those of clients.
    - ``client_auth`` (``none``): whether clients must show a certificate (``ssl.client.auth``).
    - ``principal_rules`` (``DEFAULT``): the user's name for that in a client's certificate
      (``ssl.principal.mapping.rules``).
    - ``principal_builder`` (Kafka's own): makes the principals of those who connect
      (``principal.builder.class``).
    - ``mechanisms`` (none): of SASL, a part of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI
      (``sasl.enabled.mechanisms``).
    - ``users`` (none): user name -> password (the ``user_…`` options of ``PlainLoginModule``). SCRAM finds
      its users in ZooKeeper, below ``/config/users``; on a controller these are users of SCRAM, too.
    - ``token_options`` (none): how tokens of OAUTHBEARER are validated (``unsecuredValidator…`` options of
      ``OAuthBearerLoginModule``). Without a login module there is no OAUTHBEARER.
    - ``kerberos`` (none): the principal and the keytab of GSSAPI (options of ``Krb5LoginModule``).
    - ``kerberos_rules`` (``DEFAULT``): the users' names for those of Kerberos principals
      (``sasl.kerberos.principal.to.local.rules``).
    - ``signed_tokens`` (none): tokens of OAUTHBEARER are signed (``sasl.oauthbearer.*``).
    - ``allows_dn_changes``, ``allows_san_changes`` (False): whether a certificate that takes the place of the
      one in use may have another name, and fewer names of hosts (``ssl.allow.dn.changes``,
      ``ssl.allow.san.changes``).
    - ``stores_refresh_ms`` (0): how often the files of the stores are looked at, and used when they have
      changed; 0: never (``ssl.stores.refresh.interval.ms``).
    - ``max_reauth_ms`` (none): for how many milliseconds a session lasts, by mechanism; 0: for ever
      (``connections.max.reauth.ms``).
    """

    tls: TlsSettings | None = None
    client_auth: ClientAuth = ClientAuth.NONE
    principal_rules: PrincipalRules = DEFAULT_RULES
    principal_builder: PrincipalBuilder | None = None
    allows_dn_changes: bool = False
    allows_san_changes: bool = False
    stores_refresh_ms: int = 0
    mechanisms: tuple[str, ...] = ()
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    token_options: Mapping[str, str] | None = field(default=None, repr=False)
    max_reauth_ms: Mapping[str, int] = field(default_factory=dict)
    signed_tokens: SignedTokenSettings | None = None
    kerberos: KerberosLogin | None = None
    kerberos_rules: KerberosRules = DEFAULT_KERBEROS_RULES

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "client_auth", ClientAuth(self.client_auth))
        except ValueError:
            raise ConfigError(f"client_auth: {self.client_auth!r} is not {', '.join(ClientAuth)}") from None
        unknown = [name for name in self.mechanisms if name not in MECHANISMS]
        if unknown:
            raise ConfigError(f"mechanisms: {unknown[0]!r} is not {', '.join(MECHANISMS)}")
        for user, password in self.users.items():
            if not user or not password:
                raise ConfigError("users: a name or a password is empty")
        if self.kerberos is not None and (self.kerberos.keytab is None or not self.kerberos.principal):
            raise ConfigError("kerberos: a listener needs a principal and its keytab (useKeyTab, keyTab)")

    def check(self, listener: str, protocol: SecurityProtocol) -> None:
        """Raise ConfigError when this is not enough for a listener of this security protocol."""
        if protocol.has_tls:
            if self.tls is None or not (self.tls.certificate_file or self.tls.certificate_pem):
                raise ConfigError(
                    f"listener {listener}: {protocol.name} needs a certificate (ssl.keystore.*)"
                )
        elif self.tls is not None:
            raise ConfigError(f"listener {listener}: {protocol.name} has no TLS")
        if protocol.has_sasl:
            if not self.mechanisms:
                raise ConfigError(
                    f"listener {listener}: {protocol.name} needs mechanisms (sasl.enabled.mechanisms)"
                )
            if self.mechanisms == ("PLAIN",) and not self.users:
                raise ConfigError(f"listener {listener}: nobody can authenticate: PLAIN has no users")
            if OAUTHBEARER in self.mechanisms and self.token_options is None:
                raise ConfigError(
                    f"listener {listener}: OAUTHBEARER needs a login module (oauthbearer.sasl.jaas.config)"
                )
            if GSSAPI in self.mechanisms and self.kerberos is None:
                raise ConfigError(
                    f"listener {listener}: GSSAPI needs a login module (gssapi.sasl.jaas.config)"
                )
        elif self.mechanisms:
            raise ConfigError(f"listener {listener}: {protocol.name} has no SASL")
