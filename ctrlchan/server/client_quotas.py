"""Quotas of users, client ids and IP addresses: what is asked for, and changes to them (KIP-546).

Brokers and the controller read and write them in ZooKeeper; brokers apply them. Source:
``ZkAdminManager.describeClientQuotas`` and ``alterClientQuotas``, ``QuotaConfigs`` (Kafka 3.9).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Final, NamedTuple, Protocol

from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.text import quoted, why_unsendable
from ctrlchan.zookeeper.quotas import QuotaEntity

__all__ = [
    "LARGEST",
    "MATCH_ANY",
    "MATCH_DEFAULT",
    "MATCH_EXACT",
    "USER_KEYS",
    "Component",
    "QuotaFilter",
    "QuotaStore",
    "alter_quotas",
    "entity_of",
    "keys_of",
]

_LOG: Final = logging.getLogger(__name__)

#: ``DescribeClientQuotasRequest``: the named entity, the default entity, any entity of the type.
MATCH_EXACT: Final = 0
MATCH_DEFAULT: Final = 1
MATCH_ANY: Final = 2

_USER, _CLIENT, _IP = "user", "client-id", "ip"
_TYPES: Final = (_USER, _CLIENT, _IP)
#: The quotas of users and client ids with their types, in the order of QuotaType.
USER_KEYS: Final = {
    "producer_byte_rate": "LONG",
    "consumer_byte_rate": "LONG",
    "request_percentage": "DOUBLE",
    "controller_mutation_rate": "DOUBLE",
}
_IP_KEYS: Final = {"connection_creation_rate": "INT"}
#: The largest difference to an integer of a value that is taken for one.
_EPSILON: Final = 1e-6
#: The largest value of each type that has no fraction.
LARGEST: Final = {"INT": 2**31 - 1, "LONG": 2**63 - 1}


class Component(NamedTuple):
    """Asks for entities of a type. ``match``: one of ``MATCH_…``; ``name``: for MATCH_EXACT."""

    type: str
    match: int
    name: str | None


class QuotaStore(Protocol):
    """Where quotas are kept: ZooKeeper. Methods may raise CtrlchanError."""

    def read_quota(self, entity: QuotaEntity) -> dict[str, str]:
        """Return the configuration of one entity."""

    def write_quota(self, entity: QuotaEntity, config: Mapping[str, str]) -> None:
        """Replace the configuration of one entity, and tell all brokers."""


class QuotaFilter:
    """Which entities are asked for. ``strict``: only those without another type. Raises KafkaError."""

    def __init__(self, components: Iterable[Component], *, strict: bool) -> None:
        self._strict = strict
        self._components: dict[str, Component] = {}
        for one in components:
            if not one.type:
                raise _invalid("Unexpected empty filter component entity type")
            if one.type not in _TYPES:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{one.type}' not supported"
                )
            if one.type in self._components:
                raise _invalid(f"Duplicate {one.type} filter component entity type")
            if one.match not in (MATCH_EXACT, MATCH_DEFAULT, MATCH_ANY):
                raise _invalid(f"Unexpected match type: {one.match}")
            self._components[one.type] = one
        if _IP in self._components and len(self._components) > 1:
            raise _invalid(
                "Invalid entity filter component combination, IP filter component should not be used with "
                "user or clientId filter component."
            )

    @property
    def types(self) -> list[str]:
        """The first types of the entities that can match."""
        if not self._components:
            return [] if self._strict else [*_TYPES]
        return [_IP] if _IP in self._components else [_USER, _CLIENT]

    def select(self, configs: Mapping[QuotaEntity, Mapping[str, str]]) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas of the entities that match and have any.

        A quota that is no number, and an entity whose name no response can carry, are logged and left out.
        (Kafka fails the whole request.)
        """
        selected = {}
        for entity, config in configs.items():
            if self._matches(dict(entity)) and _is_sendable(entity):
                keys = keys_of(entity)
                quotas = {key: _number(entity, key, value) for key, value in config.items() if key in keys}
                numbers = {key: value for key, value in quotas.items() if value is not None}
                if numbers:
                    selected[entity] = numbers
        return selected

    def _matches(self, names: Mapping[str, str | None]) -> bool:
        if self._strict and names.keys() - self._components.keys():
            return False
        return all(
            kind in names
            and (one.match == MATCH_ANY or names[kind] == (one.name if one.match == MATCH_EXACT else None))
            for kind, one in self._components.items()
        )


def entity_of(names: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """Return the entity of these types and names; an IP is not looked at. Raises KafkaError."""
    by_type = dict(names)
    for kind, name in names:
        if kind not in _TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if not names:
        raise _invalid("Invalid empty client quota entity")
    if _IP in by_type and len(by_type) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity should not be used with user/client ID entity."
        )
    return tuple((kind, by_type[kind]) for kind in _TYPES if kind in by_type)


def alter_quotas(
    store: QuotaStore,
    entity: QuotaEntity,
    changes: Iterable[tuple[str, float | None]],
    *,
    validate_only: bool,
) -> None:
    """Set and remove (None) quotas of an entity by key. Raises KafkaError."""
    keys = keys_of(entity)
    config = store.read_quota(entity)
    for key, value in changes:
        if value is None:
            config.pop(key, None)
        elif key in keys:
            config[key] = _text(key, keys[key], value)
        else:
            raise _invalid(f"Invalid configuration key {key}")
    if not validate_only:
        store.write_quota(entity, config)


def keys_of(entity: QuotaEntity) -> Mapping[str, str]:
    """Return the quotas that an entity can have, with their types."""
    return _IP_KEYS if entity[0][0] == _IP else USER_KEYS


def _text(key: str, kind: str, value: float) -> str:
    """Return the value as it stands in ZooKeeper."""
    if kind == "DOUBLE" and isfinite(value):
        return str(value)
    most = LARGEST.get(kind, 0)
    # As a double the largest LONG is one more: Java makes the largest LONG of that.
    if isfinite(value) and (0 if kind == "INT" else -most - 1) <= value <= float(most):
        number = min(int(value + _EPSILON), most)
        if abs(number - value) <= _EPSILON:
            return str(number)
    raise _invalid(f"Configuration {key} must be a {kind} value")


def _number(entity: QuotaEntity, key: str, text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        _LOG.error("%s of %s is left out: %s is not a number", key, entity, quoted(text))
        return None


def _is_sendable(entity: QuotaEntity) -> bool:
    for kind, name in entity:
        if name is not None and (why := why_unsendable(name)) is not None:
            _LOG.error("the quotas of %s %s are left out: the name %s", kind, quoted(name), why)
            return False
    return True


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
