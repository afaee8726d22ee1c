"""Delegation tokens, asked for by users who may do different things, over SASL and without."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from time import sleep
from typing import Any, Final

from ctrlchan.security.settings import SaslSettings
from tests.acceptance.same_answers.recorder import Broker

__all__ = ["ADMIN", "CONFIGS", "token_sessions", "tokens", "without_tokens"]

_MODULES: Final = "org.apache.kafka.common.security"
_USERS: Final = ("admin", "alice", "bob", "creator", "describer", "reader")
_PREFIX: Final = "listener.name.clients."
#: More than a millisecond, for a clock that counts them.
_EXPIRY_SECONDS: Final = 0.005
CONFIGS: Final[Mapping[str, str]] = {
    "delegation.token.secret.key": "key",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
    f"{_PREFIX}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    f"{_PREFIX}plain.sasl.jaas.config": (
        f"{_MODULES}.plain.PlainLoginModule required "
        + " ".join(f'user_{name}="{name}"' for name in _USERS)
        + ";"
    ),
    **{
        f"{_PREFIX}scram-sha-{size}.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;"
        for size in (256, 512)
    },
}

_LITERAL, _ALLOW = 3, 3
_TOKEN, _USER = 6, 7
_DESCRIBE, _CREATE_TOKENS, _DESCRIBE_TOKENS = 8, 13, 14
_HOUR: Final = 3_600_000


def _login(name: str) -> SaslSettings:
    return SaslSettings(mechanism="PLAIN", username=name, password=name)


ADMIN: Final = _login("admin")


def _principal(name: str, kind: str = "User") -> dict[str, str]:
    return {"PrincipalType": kind, "PrincipalName": name}


def _allow(broker: Broker) -> None:
    """Make the ACLs of the users."""
    broker.user = ADMIN
    creations = [
        {
            "ResourceType": kind,
            "ResourceName": name,
            "ResourcePatternType": _LITERAL,
            "Principal": f"User:{user}",
            "Host": "*",
            "Operation": operation,
            "PermissionType": _ALLOW,
        }
        for user, kind, name, operation in (
            ("creator", _USER, "User:alice", _CREATE_TOKENS),
            ("describer", _TOKEN, "*", _DESCRIBE),
            ("reader", _USER, "User:alice", _DESCRIBE_TOKENS),
        )
    ]
    broker.ask("CreateAcls", 3, Creations=creations)


def _create(broker: Broker, version: int, user: str, **values: Any) -> Any:
    broker.user = _login(user)
    fields: dict[str, Any] = {
        "OwnerPrincipalType": None,
        "OwnerPrincipalName": None,
        "Renewers": [],
        "MaxLifetimeMs": -1,
    }
    return broker.ask("CreateDelegationToken", version, **fields | values)


def _change(broker: Broker, user: str, hmac: bytes, period: int) -> None:
    broker.user = _login(user)
    for version in broker.versions["RenewDelegationToken"]:
        broker.ask("RenewDelegationToken", version, Hmac=hmac, RenewPeriodMs=period)
        broker.ask("ExpireDelegationToken", version, Hmac=hmac, ExpiryTimePeriodMs=abs(period))
        if abs(period) == 1:
            # The token has expired when it is asked for again, however fast the broker is.
            sleep(_EXPIRY_SECONDS)


def tokens(broker: Broker) -> None:
    """Each request in each version, by each user."""
    _allow(broker)
    of_bob = {"OwnerPrincipalType": "User", "OwnerPrincipalName": "bob"}
    of_alice = of_bob | {"OwnerPrincipalName": "alice"}
    hmacs = []
    for version in broker.versions["CreateDelegationToken"]:
        hmacs.append(_create(broker, version, "alice", Renewers=[_principal("bob")])["Hmac"])
        for user in ("creator", "describer", "reader", "bob", "admin"):
            for owner in (of_alice, of_bob) if version >= 3 else ({},):
                for renewers in ([_principal("x", "Group")], []):
                    _create(broker, version, user, **owner, Renewers=renewers, MaxLifetimeMs=_HOUR)
        _create(broker, version, "alice", Renewers=[_principal(""), _principal("bob"), _principal("bob")])
    for owner in ({"OwnerPrincipalType": "User"}, {"OwnerPrincipalName": ""}, {"OwnerPrincipalName": "x"}):
        _create(broker, 3, "admin", **owner)
    for user in ("alice", "bob", "creator", "admin"):
        for hmac in (b"", b"another", *hmacs[:2]):
            for period in (-1, 0, _HOUR):
                _change(broker, user, hmac, period or _HOUR)
    _describe(broker)
    for user, hmac in (("creator", hmacs[0]), ("bob", hmacs[0]), ("alice", hmacs[1]), ("alice", hmacs[1])):
        broker.user = _login(user)
        broker.ask("ExpireDelegationToken", 2, Hmac=hmac, ExpiryTimePeriodMs=-1)
    _describe(broker)
    broker.user = ADMIN


def _describe(broker: Broker) -> None:
    for user in _USERS:
        broker.user = _login(user)
        for version in broker.versions["DescribeDelegationToken"]:
            for owners in (None, [], ["alice"], ["bob"], ["alice", "creator"], ["nobody"]):
                named = None if owners is None else [_principal(one) for one in owners]
                broker.ask("DescribeDelegationToken", version, Owners=named)


def token_sessions(broker: Broker) -> None:
    """Who has logged in with a token has its owner's name, and may ask nothing about tokens."""
    made = _create(broker, 3, "alice")
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        broker.close()
        broker.user = SaslSettings(
            mechanism=mechanism,
            username=made["TokenId"],
            password=b64encode(made["Hmac"]).decode(),
            tokenauth=True,
        )
        _each(broker, made["Hmac"])
        broker.ask("DescribeCluster", 0)
    broker.user = ADMIN


def without_tokens(broker: Broker) -> None:
    """Without a secret key and without SASL."""
    _each(broker, b"h")


def _each(broker: Broker, hmac: bytes) -> None:
    for renewers in ([], [_principal("x", "Group")]):
        for owner in (None, "bob"):
            kind = None if owner is None else "User"
            named = {"OwnerPrincipalType": kind, "OwnerPrincipalName": owner}
            broker.ask_in_all("CreateDelegationToken", Renewers=renewers, MaxLifetimeMs=-1, **named)
    broker.ask_in_all("RenewDelegationToken", Hmac=hmac, RenewPeriodMs=-1)
    broker.ask_in_all("ExpireDelegationToken", Hmac=hmac, ExpiryTimePeriodMs=-1)
    for owners in (None, [], [_principal("alice")]):
        broker.ask_in_all("DescribeDelegationToken", Owners=owners)
