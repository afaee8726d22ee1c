"""Everything that a sender needs to begin a connection.

It reaches the senders through their command pipes only: never as an argument, in the environment or in a
file.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from ctrlchan.security.settings import SaslSettings, TlsSettings

__all__ = ["Credentials"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Credentials:
    """Everything that a sender needs to begin a connection. New ones replace those before, from the next
    connection on."""

    client_id: str
    negotiate: bool = False
    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None

    @property
    def are_needed(self) -> bool:
        """Whether connections begin with anything at all."""
        return self.negotiate or self.tls is not None or self.sasl is not None

    def modules(self) -> list[str]:
        """Return the names of the modules that a sender imports for them."""
        found = [] if self.tls is None else ["ctrlchan.channel.senders.tls"]
        if self.sasl is None:
            return found
        if self.sasl.mechanism.startswith("SCRAM"):
            found.append("ctrlchan.security.scram_client")
        if self.sasl.package is not None:
            found += ["ctrlchan.channel.senders.logins", "ctrlchan.security.kerberos", self.sasl.package]
        return found

    def to_json(self) -> bytes:
        """Return them as the bytes that follow a CREDENTIALS command."""
        given = asdict(self)
        if self.sasl is not None:
            # A sender has no use for what the tokens are made of.
            del given["sasl"]["tokens"]
        return json.dumps(given).encode()

    @staticmethod
    def from_json(data: bytes) -> Credentials:
        """Return the credentials that ``to_json`` gave as bytes."""
        given: dict[str, Any] = json.loads(data)
        tls, sasl = given.pop("tls"), given.pop("sasl")
        if tls is not None:
            tls |= {name: tuple(tls[name]) for name in ("versions", "cipher_suites")}
        return Credentials(
            tls=None if tls is None else TlsSettings(**tls),
            sasl=None if sasl is None else SaslSettings(**sasl),
            **given,
        )
