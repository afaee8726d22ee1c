"""Who a peer is: ``Principal``, and the base class of what makes it (``principal.builder.class``).

``org.apache.kafka.common.security.auth.KafkaPrincipal`` and ``KafkaPrincipalBuilder`` of Kafka 3.9.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final, NamedTuple

from ctrlchan.config import table
from ctrlchan.config.classes import instance_of
from ctrlchan.protocol import SecurityProtocol

__all__ = ["ANONYMOUS", "Peer", "Principal", "PrincipalBuilder", "make_principal_builder"]


class Principal(NamedTuple):
    """Who a peer is, as ACLs and quotas name him: ``User:alice``."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"

    @classmethod
    def user(cls, name: str) -> Principal:
        """Return the principal of a user."""
        return cls("User", name)


#: Who has not authenticated himself.
ANONYMOUS: Final = Principal.user("ANONYMOUS")


class Peer(NamedTuple):
    """What a listener knows of a peer that is authenticated.

    ``host``: its IP address. ``user``: of SASL, or None without SASL. ``certificate_name``: the name in its
    certificate as Java writes it (``CN=alice,OU=sales``), or None without a certificate.
    """

    listener: str
    security_protocol: SecurityProtocol
    host: str
    user: str | None = None
    certificate_name: str | None = None


class PrincipalBuilder(ABC):
    """Makes principals. ``build`` may be called by any thread, several at a time.

    A broker makes one without arguments for each listener and calls ``configure`` once. A user's own builder
    is a subclass; ``principal.builder.class`` names it as ``package.module.Class``. docs/own-classes.md has
    an example.
    """

    def configure(self, configs: Mapping[str, str]) -> None:  # noqa: B027 - most need no settings
        """Take the settings of the broker, those of the listener without their prefix. Raises ConfigError."""

    @abstractmethod
    def build(self, peer: Peer) -> Principal:
        """Return the principal of a peer. After an exception its connection is closed."""


def make_principal_builder(configs: Mapping[str, str]) -> PrincipalBuilder | None:
    """Return the builder that the settings of a listener name; None for Kafka's own. Raises ConfigError."""
    setting = table.PRINCIPAL_BUILDER_CLASS
    class_name = setting.of(configs).strip()
    if class_name in ("", setting.default):
        return None
    builder = instance_of(setting.name, class_name, PrincipalBuilder)  # type: ignore[type-abstract]
    builder.configure(configs)
    return builder
