"""Kerberos by the package gssapi: how a node logs in, credentials of both sides, reasons of errors.

The package is imported where it is used. It is a wrapper of the system's library (MIT's or Heimdal's), which
reads ``krb5.conf``; ``KRB5_CONFIG`` names another file, where Java has ``java.security.krb5.conf``.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

__all__ = [
    "KerberosLogin",
    "acceptor_credentials",
    "default_realm",
    "initiator_credentials",
    "kerberos_login",
    "load_gssapi",
    "mechanism_code",
    "reason",
]

#: Of krb5.h: the codes of Kerberos' errors begin here, as C's int32.
_FIRST_CODE: Final = -1765328384
#: One thread at a time gets the first ticket of a keytab: the library fills the cache in two steps.
_first_ticket: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class KerberosLogin:
    """Who logs in, and with what.

    ``principal``: None for that of the tickets. ``keytab``: the file with the principal's keys, None for
    tickets that another program has got. ``ticket_cache``: where they are, None for the process's own cache.
    """

    principal: str | None = None
    keytab: str | None = None
    ticket_cache: str | None = None

    def __str__(self) -> str:
        place = f"tickets {self.ticket_cache or 'of the process'}"
        return f"{self.principal or 'anybody'} ({place if self.keytab is None else f'keytab {self.keytab}'})"


def kerberos_login(options: Mapping[str, str]) -> KerberosLogin:
    """Return what the options of a ``Krb5LoginModule`` say. Raises ConfigError, as Java for the same ones.

    Of a keytab and tickets the keytab is used.
    """
    uses = {}
    for name, switch in (("keyTab", "useKeyTab"), ("ticketCache", "useTicketCache")):
        uses[name] = options.get(switch, "").lower() == "true"
        if name in options and not uses[name]:
            _refuse(f"{name} counts with {switch}=true alone")
    principal, keytab = options.get("principal") or None, options.get("keyTab") or None
    if uses["keyTab"]:
        if principal is None or keytab is None:
            _refuse("useKeyTab needs keyTab and principal")
        # Java takes the URL of a file, too.
        return KerberosLogin(principal, keytab.removeprefix("file://"))
    if not uses["ticketCache"]:
        _refuse("neither useKeyTab nor useTicketCache is true")
    return KerberosLogin(principal, None, options.get("ticketCache"))


def load_gssapi() -> Any:
    """Return the package gssapi. Raises ConfigError, with what to install."""
    try:
        import gssapi
    except ModuleNotFoundError:
        _refuse(
            "GSSAPI needs a package: pip install 'ctrlchan[kerberos]' (which is compiled with the system's "
            "libkrb5-dev or krb5-devel)"
        )
    except ImportError as problem:
        _refuse(f"GSSAPI needs the system's Kerberos library (libgssapi-krb5-2 or krb5-libs): {problem}")
    return gssapi


def acceptor_credentials(login: KerberosLogin) -> Any:
    """Return what a listener proves itself with: the keys of a principal. Raises ConfigError.

    The library looks into the keytab at each login: new keys count without a restart.
    """
    gssapi = load_gssapi()
    try:
        return gssapi.Credentials(
            name=gssapi.Name(login.principal, gssapi.NameType.kerberos_principal),
            usage="accept",
            mechs=[gssapi.MechType.kerberos],
            store={"keytab": login.keytab},
        )
    except gssapi.exceptions.GSSError as problem:
        _refuse(
            f"the keytab {login.keytab} has no key of {login.principal} that can be used: {reason(problem)}"
        )
    except NotImplementedError as problem:
        _refuse(f"the system's Kerberos library cannot be used: {problem}")


def initiator_credentials(login: KerberosLogin) -> Any:
    """Return what a client proves itself with. Raises GSSError; waits for the KDC.

    Tickets of a keytab stay in the memory of the process, as in Java, and are replaced in time; nothing is
    written to the cache that other programs of the same user have.
    """
    gssapi = load_gssapi()
    name = None
    if login.principal is not None:
        name = gssapi.Name(login.principal, gssapi.NameType.kerberos_principal)
    if login.keytab is None:
        store = None if login.ticket_cache is None else {"ccache": login.ticket_cache}
    else:
        key = hashlib.sha256(f"{login.principal}\0{login.keytab}".encode()).hexdigest()[:32]
        store = {"ccache": f"MEMORY:ctrlchan-{key}", "client_keytab": login.keytab}
    with _first_ticket:
        return gssapi.Credentials(name=name, usage="initiate", mechs=[gssapi.MechType.kerberos], store=store)


def default_realm() -> str:
    """Return the realm of names without one; empty if there is none. Raises ConfigError without gssapi."""
    gssapi = load_gssapi()
    try:
        name = gssapi.Name("name", gssapi.NameType.user).canonicalize(gssapi.MechType.kerberos)
        return str(name).rpartition("@")[2]
    except gssapi.exceptions.GSSError:
        return ""


def mechanism_code(problem: Any) -> int:
    """Return the number of Kerberos' error that a GSSError has, as RFC 4120 has it."""
    code = int(problem.min_code) & 0xFFFFFFFF
    return code - (_FIRST_CODE & 0xFFFFFFFF)


def reason(problem: Any) -> str:
    """Return what a GSSError says: Kerberos' own words, else those of GSSAPI. No secret is among them."""
    found = problem.get_all_statuses(problem.min_code, False) if problem.min_code else []
    found = found or problem.get_all_statuses(problem.maj_code, True)
    return "; ".join(dict.fromkeys(str(one) for one in found)) or type(problem).__name__


def _refuse(text: str) -> NoReturn:
    # Senders of a channel import this file, and must not load the codec for an error that they never meet.
    from ctrlchan.errors import ConfigError

    raise ConfigError(text) from None
